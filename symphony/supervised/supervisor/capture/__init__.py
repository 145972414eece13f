"""Capturing the output of processes in their logs, whose size is limited."""
