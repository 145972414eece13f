"""Access to the API server: requests, errors, watches, and the names and paths of objects."""
