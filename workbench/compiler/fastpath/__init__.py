"""Memoized replacements of slow Thunder functions. Traces do not change, except for the names of aliases."""
