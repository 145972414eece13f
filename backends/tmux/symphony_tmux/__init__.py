"""The tmux backend: processes of this machine in the windows of symphony's own tmux server."""
