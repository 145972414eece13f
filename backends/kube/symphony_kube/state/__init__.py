"""The state of an experiment, computed from the objects in Kubernetes. Pure."""
