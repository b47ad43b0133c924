"""Bound symbols and traces: stable ids, keys, memoized attributes, in-place copies, checks."""
