"""The commands that run experiments."""
