"""Plans of a captured program, and their replay on the CPU."""
