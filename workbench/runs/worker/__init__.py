"""Programs that run inside the worker process."""
