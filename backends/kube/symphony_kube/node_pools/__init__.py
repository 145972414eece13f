"""Putting processes on the right machines: node pools, what their machines can give, and shares of it."""
