"""Watching experiments: the model behind `symphony top` and `symphony ui`."""
