"""Give the tests a Kubernetes cluster: a pytest plugin and its parts.

`clusters` finds the cluster, `plugin` defines the fixtures, `faults` is a proxy that injects
faults, and `hollow` adds nodes that run a thousand Pods without containers.
"""
