"""Capture of programs, the disk cache of captured programs, and jit. `workbench.compiler.api` calls these functions."""
