"""Choices for a stated peak, and the ranking of choices."""
