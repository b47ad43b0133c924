"""HTML pages, saved views and the picture in a notebook."""
