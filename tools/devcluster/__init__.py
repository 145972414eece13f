"""Run a real Kubernetes cluster for the tests on one Debian 12 machine, using Debian packages.

`cli` is the entry point. `cluster` starts and stops the cluster, and each of the other modules
handles one part of it. The package requires only Python's standard library.
"""
