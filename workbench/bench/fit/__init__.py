"""Choices that fit a memory budget, and the ranking of choices."""
