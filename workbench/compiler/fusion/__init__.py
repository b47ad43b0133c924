"""Fusion executors, partitioning and min-cut rematerialization."""
