"""All code that uses Thunder's internals."""
