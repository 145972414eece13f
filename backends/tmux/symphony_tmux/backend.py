"""The part of the tmux backend that `Cluster` calls; see `symphony.cluster.backend`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from symphony.cluster.backend import LogPart, NamedProcess
from symphony.errors import BackendError, NotFound
from symphony.supervised.host_backend import HostBackend
from symphony.supervised.record.directory import RunDirectory
from symphony_tmux.keeper import clean_pieces


class TmuxBackend(HostBackend):
    """The experiments whose processes have tmux windows.

    ``answer_within`` is the time in seconds in which a tmux server has to respond. The other
    arguments are those of `HostBackend`.
    """

    def __init__(self, *, answer_within: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._answer_within = answer_within

    def log(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        """Yield the output of a process, which its log file contains as shown in the window."""
        return clean_pieces(super().log(experiment, process, part))

    def attach(self, experiment: str, process: NamedProcess) -> None:
        """Attach the terminal to a process's window. The process may have exited already."""
        found = process.find()
        run = self._find(experiment)
        socket = _socket(run)
        if socket is not None:
            from symphony_tmux.tmux_server import Server

            server = Server(socket, self._answer_within)
            manifest = run.load_manifest()
            window = server.window(run.name, manifest["run_id"], found.name)
            if window is not None:
                environment = {**os.environ, **manifest["env"]}
                server.attach(run.name, manifest["run_id"], window, environment)
                return
        reason = f" ({found.reason})" if found.reason else ""
        raise NotFound(f"process {found.path!r} has no window: it is {found.state}{reason}")


def _socket(run: RunDirectory) -> str | None:
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
        return _socket(run)
    except (BackendError, NotFound):
        return None
