"""Base widgets that the others share."""
