"""Operator coverage: overrides, decompositions, functionalization and custom operators."""
