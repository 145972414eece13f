"""Deleting experiments on tmux, together with their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.supervised.host_deletion import HostDeletion
from symphony_tmux.run_socket import socket_or_none
from symphony_tmux.tmux_commands import socket_path
from symphony_tmux.tmux_server import Server

if TYPE_CHECKING:
    from symphony.config import SymphonyConfig
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.record.directory import RunDirectory
    from symphony_tmux.backend import TmuxServerOptions


class TmuxDeletion(HostDeletion):
    """The deletion of experiments that have sessions of ``server``."""

    def __init__(
        self, runs: HostRuns, configuration: SymphonyConfig, server: TmuxServerOptions
    ) -> None:
        super().__init__(runs, configuration)
        self._server = server

    def remove(self, run: RunDirectory, *, purge: bool = False) -> None:
        """Free the name of an experiment without running processes, and remove its session.

        The directory is moved first. If the supervisor was killed, tmux may create the session
        only after this method has returned. Without the directory, each keeper exits at once, and
        its window closes.
        """
        socket = socket_or_none(run) or socket_path(self._server.server_name)
        run_id = run.run_id()
        super().remove(run, purge=purge)
        if run_id is not None:
            # If the server is suspended, it removes the session when it resumes.
            Server(socket, self._server.answer_within).kill(run.name, run_id)
