"""Launching and changing experiments on tmux, whose windows need open files of the tmux server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import BackendError
from symphony.plan.changes import ADDED
from symphony.supervised.host_change import HostChange
from symphony.supervised.host_launcher import HostLauncher
from symphony.supervised.record.directory import find
from symphony_tmux.tmux_commands import check_open_files, find_tmux

if TYPE_CHECKING:
    from symphony.cluster.backend import LaunchRequest
    from symphony.plan.changes import Changes
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_planner import HostPlanner
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.render import HostManifest
    from symphony_tmux.backend import TmuxServerOptions

# For the gate of the keeper of a process, and for its pidfd.
_PROCESS_DESCRIPTORS = 2


class TmuxLauncher(HostLauncher):
    """Launches experiments whose processes have windows of ``server``."""

    process_descriptors: ClassVar[int] = _PROCESS_DESCRIPTORS

    def __init__(
        self,
        options: HostOptions,
        runs: HostRuns,
        planner: HostPlanner,
        deletion: HostDeletion,
        server: TmuxServerOptions,
    ) -> None:
        super().__init__(options, runs, planner, deletion)
        self._server = server

    def launch(self, request: LaunchRequest) -> HostManifest:
        """Launch an experiment, if the server can open its windows."""
        # These calls report errors before anything is changed.
        find_tmux()
        new_windows = len(request.experiment.list_all_processes())
        if request.force:
            new_windows -= self._count_windows(request.experiment.name)
        check_open_files(self._server.server_name, new_windows)
        return super().launch(request)

    def children_options(self) -> dict[str, Any]:
        """Return the options of the server, with which the supervisor opens windows."""
        return self._server._asdict()

    def _count_windows(self, name: str) -> int:
        """Return the number of windows of an experiment, or 0 if there is no such experiment."""
        run = find(self._runs.root, name)
        try:
            return 0 if run is None else len(run.load_manifest()["processes"])
        except (BackendError, FileNotFoundError):
            return 0


class TmuxChange(HostChange):
    """Changes experiments whose processes have windows of ``server``."""

    process_descriptors: ClassVar[int] = _PROCESS_DESCRIPTORS

    def __init__(
        self,
        options: HostOptions,
        runs: HostRuns,
        planner: HostPlanner,
        server: TmuxServerOptions,
    ) -> None:
        super().__init__(options, runs, planner)
        self._server = server

    def check_change(self, changes: Changes) -> None:
        """Check that the server can open the windows of the added processes."""
        check_open_files(self._server.server_name, len(changes.names(ADDED)))
