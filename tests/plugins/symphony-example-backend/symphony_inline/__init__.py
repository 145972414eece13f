"""The backend ``inline``: one process after another, in the foreground of the launch."""
