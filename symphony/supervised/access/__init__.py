"""Commands, files and connections of a running process."""
