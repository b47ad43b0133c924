"""Predict the times of statements, transfers and collectives."""
