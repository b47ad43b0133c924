"""Memoized replacements of slow Thunder functions. Traces do not change."""
