"""The code shared by the single-machine backends, such as run directories and the supervisor.

The local backend and the tmux backend are built on this package. The package belongs to the core
and does not import a backend.
"""
