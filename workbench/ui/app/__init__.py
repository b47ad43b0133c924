"""The app, put together from its parts."""
