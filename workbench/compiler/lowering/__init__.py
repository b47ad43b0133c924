"""Operators that Thunder lacks or computes wrongly: overrides, decompositions, functionalization, custom operators."""
