"""Run a real Kubernetes cluster on one Debian 12 machine, from Debian packages, for the tests.

`cli` is the entry point. `cluster` starts and stops the parts, and every other module handles one
part. Only the standard library is needed.
"""
