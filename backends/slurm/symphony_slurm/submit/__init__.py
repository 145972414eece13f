"""What is requested from Slurm, checked before a job is submitted."""
