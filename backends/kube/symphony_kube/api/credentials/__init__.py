"""API servers and credentials, from kubeconfigs or the service account of a Pod."""
