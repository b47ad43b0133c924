"""Liveness, peaks and allocator rounding."""
