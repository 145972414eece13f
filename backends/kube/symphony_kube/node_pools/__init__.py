"""Placement of processes on node pools: the pools, their capacity, and machine shares."""
