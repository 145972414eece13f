"""The backend ``polite``: processes of this machine that give way to all others."""
