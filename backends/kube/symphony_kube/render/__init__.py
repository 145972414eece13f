"""Render a plan as Kubernetes objects. All modules except `files` and `secret_file` are pure."""
