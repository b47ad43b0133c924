"""`thunder-workbench gpu-check`: everything there is to learn about a GPU, in parts, in one command."""
