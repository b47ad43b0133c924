"""Orders of statements and collectives."""
