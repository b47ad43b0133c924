"""Analyses of a `Graph`. Importing them imports neither PyTorch nor Thunder."""
