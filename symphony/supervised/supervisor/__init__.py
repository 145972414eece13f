"""The supervisor, a detached process that starts, observes and stops an experiment's processes."""
