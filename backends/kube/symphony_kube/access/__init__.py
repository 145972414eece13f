"""Access to running containers: exec, copy and port forwarding."""
