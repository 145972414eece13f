"""Everything that the backends of one machine share, such as run directories and the supervisor.

The local and the tmux backend are built on this package. It belongs to the core and does not
import a backend.
"""
