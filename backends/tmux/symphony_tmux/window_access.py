"""Attaching the terminal to the tmux window of a process."""

from __future__ import annotations

import os

from symphony.cluster.backend import NamedProcess
from symphony.errors import NotFound
from symphony.supervised.host_access import HostAccess
from symphony.supervised.host_inspection import HostInspection
from symphony_tmux.run_socket import recorded_socket


class WindowAccess(HostAccess):
    """Access to processes that have tmux windows.

    ``answer_within`` is the time in seconds in which a tmux server has to respond.
    """

    def __init__(self, backend: HostInspection, answer_within: float) -> None:
        super().__init__(backend)
        self._answer_within = answer_within

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Attach the terminal to a process's window. The process may have exited already."""
        found = process.find()
        if dry_run:
            return
        run = self._runs.find(experiment)
        socket = recorded_socket(run)
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
