"""One file per lever; `workbench.core.lever` says what a lever is."""
