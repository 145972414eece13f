"""What the tests need of a Kubernetes, whichever it is: a pytest plugin and its parts.

`clusters` finds the cluster, `plugin` has the fixtures, `faults` is a proxy that misbehaves when it
is told to, `hollow` makes nodes that run a thousand Pods without a container.
"""
