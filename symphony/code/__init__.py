"""Snapshots of the code of an experiment: deterministic archives that are named by a digest."""
