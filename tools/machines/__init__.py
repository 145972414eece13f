"""Machines for the tests: isolated environments with real services from Debian packages.

`devcluster` and `devslurm` use this package. It requires only Python's standard library.
"""
