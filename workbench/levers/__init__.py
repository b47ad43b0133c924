"""One file per lever, and `base`, which says what a lever is."""
