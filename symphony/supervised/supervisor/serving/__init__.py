"""Serving the requests of users to a running supervisor."""
