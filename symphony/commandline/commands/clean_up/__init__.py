"""The commands that clean up."""
