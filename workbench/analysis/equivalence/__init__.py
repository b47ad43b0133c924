"""Prove that two plans compute the same values."""
