"""Several runs: sweeps, remote runs and comparisons."""
