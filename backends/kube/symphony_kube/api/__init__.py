"""Access to the API server: requests, errors, watches and the shape of its objects."""
