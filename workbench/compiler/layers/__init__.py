"""Repeated layers: find them, leave most of them out, and add their statements to later traces."""
