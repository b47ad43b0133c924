"""The controls, the strip of figures, the inspector and the preview."""
