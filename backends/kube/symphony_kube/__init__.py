"""The kube backend, which runs experiments as Pods, Services and Jobs in a Kubernetes cluster."""
