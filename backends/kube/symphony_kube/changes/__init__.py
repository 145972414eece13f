"""Changing a running experiment: the comparison with a new description, and the steps after it."""
