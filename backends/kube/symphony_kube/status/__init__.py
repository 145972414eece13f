"""Compute the status of experiments from Pods, Jobs and events."""
