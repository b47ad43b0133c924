"""Base widgets shared by the others."""
