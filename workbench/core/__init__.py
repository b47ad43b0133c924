"""Public types and the two registries."""
