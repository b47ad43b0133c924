"""Capture, its disk cache, jit, timers, and plain PyTorch. `workbench.compiler.api` exports the main functions."""
