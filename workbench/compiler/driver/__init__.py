"""Capture, cache and jit: the steps behind `workbench.compiler.api`."""
