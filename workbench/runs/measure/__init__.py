"""Measurements of memory, time and accuracy."""
