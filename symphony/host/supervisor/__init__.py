"""The supervisor: the detached process that starts, watches and stops an experiment's processes."""
