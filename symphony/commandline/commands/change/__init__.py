"""The commands that change running experiments."""
