"""The part of the tmux backend that `Cluster` calls; see `symphony.cluster.backend`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from symphony.cluster.backend import Access
from symphony.status import ExperimentStatus, ReasonCode
from symphony.supervised.host_backend import HostBackend, Launcher
from symphony.supervised.host_runs import HostRuns
from symphony.supervised.record.directory import RunDirectory
from symphony.support.data_classes import replace
from symphony_tmux.keeper import MARK_LINE, clean, clean_pieces

if TYPE_CHECKING:
    from symphony.supervised.host_change import HostChange
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions


class TmuxServerOptions(NamedTuple):
    """The name of a tmux server, and the time in seconds in which a server has to respond."""

    server_name: str
    answer_within: float


class TmuxRuns(HostRuns):
    """The run directories of experiments whose processes have tmux windows."""

    def status(self, run: RunDirectory) -> ExperimentStatus:
        """Return the status of an experiment.

        If the supervisor was killed, each process's pid is determined from the keeper of its
        window.
        """
        status = super().status(run)
        from symphony_tmux.windows import process_of

        processes = []
        for process in status:
            unsupervised = process.reason_code is ReasonCode.SUPERVISOR_KILLED
            if unsupervised and process.pid is not None:
                process = replace(process, pid=process_of(process.pid))
            processes.append(process)
        return replace(status, processes=tuple(processes))


class TmuxBackend(HostBackend):
    """The experiments whose processes have tmux windows."""

    # The log file contains the output of a window, which is converted to the output of the process.
    # The keeper's mark can be on a line of its own, which does not count as a line of output.
    ignored_last_line = MARK_LINE

    def __init__(self, options: HostOptions, server: TmuxServerOptions) -> None:
        super().__init__(options)
        self._server = server

    def make_runs(self, options: HostOptions) -> HostRuns:
        """Return the run directories."""
        return TmuxRuns(options)

    def with_options(self, options: HostOptions) -> HostBackend:
        """Return a backend for the same server with other options."""
        return type(self)(options, self._server)

    @functools.cached_property
    def launcher(self) -> Launcher:
        """The object that launches experiments on the server."""
        from symphony_tmux.launch_windows import TmuxLauncher

        return TmuxLauncher(self.options, self.runs, self.planner, self.deletion, self._server)

    @functools.cached_property
    def changing(self) -> HostChange:
        """The object that changes experiments on the server."""
        from symphony_tmux.launch_windows import TmuxChange

        return TmuxChange(self.options, self.runs, self.planner, self._server)

    @functools.cached_property
    def deletion(self) -> HostDeletion:
        """The object that deletes experiments and their sessions."""
        from symphony_tmux.delete_session import TmuxDeletion

        return TmuxDeletion(self.runs, self.options.configuration, self._server)

    def clean(self, text: str) -> str:
        """Return the output of a process that a part of its window contains."""
        return clean(text)

    def clean_pieces(self, pieces: Iterator[str]) -> Iterator[str]:
        """Return the output of a process that consecutive parts of its window contain."""
        return clean_pieces(pieces)

    @property
    def access(self) -> Access:
        """The object that attaches the terminal to the windows of processes."""
        from symphony_tmux.window_access import WindowAccess

        return WindowAccess(self, self._server.answer_within)
