"""What backends on one machine share: run directories, events, leases, process trees, probes and logs.

Local processes and tmux windows stand on it. It belongs to the core and knows no backend.
"""
