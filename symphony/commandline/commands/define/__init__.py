"""The commands that define experiments."""
