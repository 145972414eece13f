"""The kube backend: Pods, Services and Jobs of a Kubernetes cluster, with nothing installed in it."""
