"""All code that uses Thunder, except for the levers."""
