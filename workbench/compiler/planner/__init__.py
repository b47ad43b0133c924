"""Plans of a captured program, and the kernels of a compiled program."""
