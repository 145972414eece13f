"""Run a real Slurm for the tests on one machine, using Debian packages that are not installed.

`cli` is the entry point. `cluster` starts and stops everything, `packages` unpacks Slurm, and
`config` writes its configuration. The package requires only Python's standard library.
"""
