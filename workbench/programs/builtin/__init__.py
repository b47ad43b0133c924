"""Built-in programs, one file each; imported on first use."""
