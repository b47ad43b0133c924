"""Helpers for bound symbols and traces: stable ids, keys, cached facts, in-place copies, validation."""
