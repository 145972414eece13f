"""The local backend: processes of this machine under a detached supervisor."""
