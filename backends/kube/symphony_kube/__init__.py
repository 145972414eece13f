"""The kube backend: runs experiments as Pods, Services and Jobs of a Kubernetes cluster."""
