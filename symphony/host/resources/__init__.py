"""Ports and GPUs, which only one process can use at a time, and the leases on them."""
