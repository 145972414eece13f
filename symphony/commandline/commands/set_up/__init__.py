"""The commands that set up symphony."""
