"""Queries on a `Graph`."""
