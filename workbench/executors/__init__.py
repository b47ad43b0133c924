"""One file per executor; `workbench.executor` says what an executor is."""
