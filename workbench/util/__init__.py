"""Functions and classes that do not import PyTorch."""
