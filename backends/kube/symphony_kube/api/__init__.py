"""Access to the API server: requests, errors, watches, and object names and paths."""
