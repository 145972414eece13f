"""The tmux backend: a `HostCluster` with a tmux window for each process."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import BackendError, SpecError, shown
from symphony.model.settings.durations import parse_positive_duration
from symphony.plan.changes import ADDED
from symphony.status import ReasonCode
from symphony.supervised.cluster import HostCluster
from symphony.supervised.host_backend import HostBackend
from symphony.supervised.record.directory import RunDirectory, find
from symphony_tmux.backend import TmuxBackend, socket_or_none
from symphony_tmux.keeper import MARK_LINE, clean
from symphony_tmux.tmux_commands import (
    ANSWER_TIMEOUT_SECONDS,
    DEFAULT_SERVER,
    check_open_files,
    find_tmux,
)

if TYPE_CHECKING:
    from symphony.cluster import OnChange
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.status import ExperimentStatus
    from symphony.supervised.render import HostManifest

# libtmux is not imported here, because the import would delay every launch.
if importlib.util.find_spec("libtmux") is None:
    raise ModuleNotFoundError("No module named 'libtmux'", name="libtmux")

USERS_SERVER = "default"
# Longer times cannot be represented in the time functions of the operating system.
MAX_SECONDS = 1e9


class TmuxCluster(HostCluster):
    """The tmux backend, which runs each process on this machine in a window of symphony's tmux
    server.

    Each experiment is a session that has the experiment's name. Each process has a window called
    ``process`` or ``group:process``. The windows are in declaration order. A window stays open
    after its process has exited. A process's output is shown in its window, and the complete output
    is in its log.

    ``server_name`` is the name of the tmux server (tmux's ``-L``). The server has the time
    ``answer_within`` to respond, in seconds or with a unit such as ``"1m"``. The other options are
    those of `HostCluster`.
    """

    backend: ClassVar[str] = "tmux"
    children: ClassVar[str] = "symphony_tmux.children:TmuxChildren"
    backend_class: ClassVar[type[HostBackend]] = TmuxBackend
    process_descriptors: ClassVar[int] = 2  # For the gate of the keeper, and for its pidfd.

    def __init__(
        self,
        *,
        server_name: str = DEFAULT_SERVER,
        answer_within: float | str = ANSWER_TIMEOUT_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._answer_within = float(
            parse_positive_duration(answer_within, "answer_within", maximum=MAX_SECONDS)
        )
        self._server_name = _server_name(server_name)

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> HostManifest:
        # These calls report errors before anything is changed.
        find_tmux()
        new_windows = len(experiment.list_all_processes())
        if force:
            new_windows -= self._count_windows(experiment.name)
        check_open_files(self._server_name, new_windows)
        return super()._launch(experiment, force=force, on_change=on_change)

    def _count_windows(self, name: str) -> int:
        """Return the number of windows of an experiment, or 0 if there is no such experiment."""
        run = find(self._root, name)
        try:
            return 0 if run is None else len(run.load_manifest()["processes"])
        except (BackendError, FileNotFoundError):
            return 0

    def _check_change(self, changes: Changes) -> None:
        check_open_files(self._server_name, len(changes.names(ADDED)))

    def _backend_arguments(self) -> dict[str, Any]:
        return {**super()._backend_arguments(), "answer_within": self._answer_within}

    def _children_options(self) -> dict[str, Any]:
        return {"server_name": self._server_name, "answer_within": self._answer_within}

    def _remove(self, run: RunDirectory, *, purge: bool = False) -> None:
        """Free the name of an experiment without running processes, and remove its session.

        The directory is moved first. If the supervisor was killed, tmux may create the session
        only after this method has returned. Without the directory, each keeper exits at once, and
        its window closes.
        """
        from symphony_tmux.tmux_commands import socket_path
        from symphony_tmux.tmux_server import Server

        socket = socket_or_none(run) or socket_path(self._server_name)
        run_id = run.run_id()
        super()._remove(run, purge=purge)
        if run_id is not None:
            # If the server is suspended, it removes the session when it resumes.
            Server(socket, self._answer_within).kill(run.name, run_id)

    def _describe(self, run: RunDirectory) -> ExperimentStatus:
        """Return the status of an experiment.

        If the supervisor was killed, each process's pid is determined from the keeper of its
        window.
        """
        status = super()._describe(run)
        from symphony_tmux.windows import process_of

        processes = []
        for process in status:
            unsupervised = process.reason_code is ReasonCode.SUPERVISOR_KILLED
            if unsupervised and process.pid is not None:
                process = replace(process, pid=process_of(process.pid))
            processes.append(process)
        return replace(status, processes=tuple(processes))

    # The log file contains the output of a window, which is converted to the output of the process.
    # The keeper's mark can be on a line of its own, which does not count as a line of output.
    _ignored_last_line = MARK_LINE

    def _clean_output(self, text: str) -> str:
        return clean(text)


def _server_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)
        or name.startswith(".")
    ):
        raise SpecError(f"server_name must be letters, digits, '-', '_' and '.', not {shown(name)}")
    if name == USERS_SERVER:
        raise SpecError(
            f"server_name {USERS_SERVER!r} is your own tmux server, which symphony does not use; "
            "choose another name"
        )
    return name
