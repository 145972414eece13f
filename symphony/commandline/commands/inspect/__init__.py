"""The commands that inspect experiments."""
