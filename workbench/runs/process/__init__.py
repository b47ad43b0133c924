"""Start, follow and end the worker process of a run."""
