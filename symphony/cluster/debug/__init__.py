"""Putting processes under a debugger, and restarting them with their ordinary commands."""
