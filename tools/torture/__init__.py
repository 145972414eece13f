"""Trials of the local and the tmux backend in which programs are killed at random moments.

The trials also send random signals, use full disks and let several programs compete for one name.
After each round of a trial, the same invariants are checked: for example, no process and no
directory is left behind. See `scripts/torture --help`.
"""
