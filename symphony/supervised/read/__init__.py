"""Reading the logs and the details of processes."""
