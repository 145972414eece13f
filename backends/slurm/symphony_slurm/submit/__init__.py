"""The request to Slurm, which is checked before a job is submitted."""
