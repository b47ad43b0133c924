"""Analyses that read only a `Graph`, and no Thunder object."""
