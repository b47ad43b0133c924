"""One file for each lever. `workbench.core.lever` describes levers."""
