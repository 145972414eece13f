"""Compute the status of experiments from Pods, Jobs and events, and find the containers of processes."""
