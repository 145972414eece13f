"""The local backend, which runs processes on this machine under a detached supervisor."""
