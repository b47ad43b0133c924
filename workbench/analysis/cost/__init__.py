"""Times of statements, transfers and collectives."""
