"""The tmux backend, which runs processes on this machine in windows of symphony's own tmux
server.
"""
