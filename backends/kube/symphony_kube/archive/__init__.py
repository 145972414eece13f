"""The records of runs: describe each launch, and keep status and logs when Pods are deleted."""
