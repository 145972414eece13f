"""Connections to containers: for exec, attach and port-forward."""
