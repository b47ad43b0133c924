"""`thunder-workbench gpu-check`: all measurements on a GPU, in parts, in one command."""
