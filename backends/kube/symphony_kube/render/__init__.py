"""Rendering of a plan to Kubernetes objects. Pure, except for `files` and `secret_file`."""
