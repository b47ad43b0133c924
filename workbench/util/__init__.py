"""Helpers that need no PyTorch."""
