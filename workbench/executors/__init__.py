"""One file for each executor. `workbench.core.executor` describes executors."""
