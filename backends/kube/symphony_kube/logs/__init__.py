"""Read and follow container logs."""
