"""The directories in which symphony keeps files."""
