"""Requests of users to a supervisor, and what is done in its place if it was killed."""
