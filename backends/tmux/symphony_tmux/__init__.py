"""The tmux backend: processes of this machine in windows of symphony's own tmux server."""
