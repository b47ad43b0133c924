"""The built-in programs, one file each; imported when they are asked for."""
