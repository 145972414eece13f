"""A real Kubernetes on one Debian 12 machine, from Debian's packages alone, for the tests.

`cli` is the way in; `cluster` brings the parts up and down; every other module knows one part.
The standard library is all that is needed.
"""
