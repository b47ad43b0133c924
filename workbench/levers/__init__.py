"""One file per lever; `workbench.lever` says what a lever is."""
