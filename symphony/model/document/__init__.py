"""Experiment files: how they are read, checked and written."""
