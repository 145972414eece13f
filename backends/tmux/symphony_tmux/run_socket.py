"""The socket of the tmux server on which an experiment was launched."""

from __future__ import annotations

import os

from symphony.errors import BackendError, NotFound
from symphony.supervised.record.directory import RunDirectory


def recorded_socket(run: RunDirectory) -> str | None:
    """Return the socket path of the tmux server on which an experiment was launched.

    Return None if the experiment has no session yet. Raises BackendError if the file that contains
    the path is damaged.
    """
    file = run.file("socket")
    if not os.path.lexists(file):
        return None
    with run.report_damage(file):
        socket = file.read_bytes().decode()
        if not socket.startswith("/") or not socket.isprintable():
            raise ValueError("it contains no path")
    return socket


def socket_or_none(run: RunDirectory) -> str | None:
    """Return the socket path of an experiment's tmux server, or None if it is unknown."""
    try:
        return recorded_socket(run)
    except (BackendError, NotFound):
        return None
