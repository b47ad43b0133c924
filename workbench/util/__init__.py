"""Helpers that work without PyTorch: files, caches, locks, lazy imports, GPU detection."""
