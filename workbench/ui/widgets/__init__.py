"""Base classes and helpers of the app's widgets."""
