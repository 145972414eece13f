"""A pytest plugin that provides a Kubernetes cluster for the tests, and the plugin's parts.

`clusters` finds the cluster, `plugin` defines the fixtures, `faults` is a proxy that injects
faults, and `hollow` adds simulated nodes that can run a thousand Pods without containers.
"""
