"""Resolve an experiment to a plan: addresses, merged settings and start dependencies."""
