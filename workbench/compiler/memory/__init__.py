"""Memory effects of each statement, and the `Graph` of a pair of traces."""
