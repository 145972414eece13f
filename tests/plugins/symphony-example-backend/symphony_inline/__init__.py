"""The backend ``inline``, which runs processes one after another during the launch."""
