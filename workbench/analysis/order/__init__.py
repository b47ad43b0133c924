"""Search for orders of statements."""
