"""Choose for each saved storage whether to save, recompute or offload it, under a limit on peak memory."""
