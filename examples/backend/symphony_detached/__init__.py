"""The backend ``detached``, which runs processes in sessions of their own on this machine."""
