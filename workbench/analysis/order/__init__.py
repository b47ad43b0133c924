"""Search for orders of statements and of collectives."""
