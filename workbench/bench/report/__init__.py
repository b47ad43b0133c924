"""Saved plans, comparisons, and HTML pages."""
