"""The app, assembled from its parts."""
