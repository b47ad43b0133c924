"""One file per executor; `workbench.core.executor` says what an executor is."""
