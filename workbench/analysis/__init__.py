"""Arithmetic on graphs alone."""
