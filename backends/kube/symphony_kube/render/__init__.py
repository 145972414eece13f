"""Rendering of a plan to Kubernetes objects. Pure, except for reading files."""
