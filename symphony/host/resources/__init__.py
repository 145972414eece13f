"""Resources that a machine has only once: ports and GPUs, and the leases on them."""
