"""Reading and following the logs of containers."""
