"""Read and follow the logs of containers."""
