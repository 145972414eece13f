"""The Slurm backend, which runs an experiment as one job with an agent on each node."""
