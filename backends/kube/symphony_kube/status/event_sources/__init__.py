"""The sources of events: Pods, Jobs, containers and what Kubernetes records about them."""
