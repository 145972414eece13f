"""Helpers that contain no word of the domain, for all other packages."""
