"""Leases on ports and GPUs. Only one process can use a port or a GPU at a time."""
