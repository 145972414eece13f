"""The backend ``polite``, which runs local processes with a low priority."""
