"""Analyses that need only a `Graph`, and import neither PyTorch nor Thunder."""
