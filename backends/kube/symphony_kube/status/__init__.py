"""The status of experiments, computed from Pods, Jobs and events."""
