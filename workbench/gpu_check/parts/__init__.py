"""The parts of a check: one file for each part, `part_list` with their order, and code that they share."""
