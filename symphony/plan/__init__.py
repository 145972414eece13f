"""Resolving an experiment into a plan: addresses, merged settings and start dependencies."""
