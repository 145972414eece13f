"""The part of a backend with which users reach processes: commands, terminals, files and ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from symphony.cluster.matching import find_status, unsupported
from symphony.cluster.results import Tunnel

if TYPE_CHECKING:
    from symphony.cluster.backend.inspection import Inspection
    from symphony.cluster.cluster import Progress
    from symphony.cluster.results import ExecResult
    from symphony.status import ExperimentStatus, ProcessStatus


class NamedProcess:
    """A process that a user has named. ``name`` and ``group`` are what the user has written.

    A backend that finds the process by itself, for example with a request for a single Pod, does
    not need its status, which `find` reads.
    """

    def __init__(
        self, name: str, group: str | None, observe: Callable[[], ExperimentStatus]
    ) -> None:
        self.name = name
        self.group = group
        self._observe = observe
        self._found: ProcessStatus | None = None

    def find(self) -> ProcessStatus:
        """Return the status of the process, which is read once.

        Raises `NotFound` if the experiment or the process does not exist, or if the process is in
        another group.
        """
        if self._found is None:
            self._found = find_status(self._observe(), self.name, self.group)
        return self._found


class Place(NamedTuple):
    """A path in a process, or a local path if ``process`` is None.

    A relative path in a process is relative to the working directory of the process. ``text`` is
    what the user has written, for messages.
    """

    process: NamedProcess | None
    path: str
    text: str


class ForwardRequest(NamedTuple):
    """A request for a tunnel to the process or the service ``name``.

    ``port`` is that of the other end, or None for the port of the service, and ``local_port`` that
    of this machine, or None for any. With ``external``, ``name`` is an exposed service. The tunnel
    then consists of its external address, and nothing is forwarded, unless this machine cannot
    connect to the address; see `Cluster.visit`. ``on_error`` is called with the message if a
    connection fails, in another thread.
    """

    name: str
    port: int | None = None
    local_port: int | None = None
    external: bool = False
    on_error: Callable[[str], None] | None = None


class Access:
    """The ways to reach the processes of ``backend``. All methods are optional.

    By default, they raise `Unsupported`, or do what their documentation says.
    """

    def __init__(self, backend: Inspection) -> None:
        self.backend = backend

    # --- processes ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command in the environment and the working directory of a process.

        See `Cluster.exec_command`.
        """
        del experiment, argv, interactive
        process.find()
        raise unsupported(self.backend.name, "cannot run commands in the environment of a process")

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Attach the terminal of this program to a process.

        With ``dry_run``, only raise the error if no terminal can be attached.
        """
        found = process.find()
        del experiment
        if not dry_run:
            raise unsupported(
                self.backend.name,
                f"cannot attach a terminal to {found.name!r}; 'symphony exec' runs a command in "
                "its environment, 'symphony logs -f' follows its log",
            )

    def copy(
        self,
        experiment: str,
        source: Place,
        target: Place,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Copy files from or to a process; see `Cluster.transfer_file`."""
        del experiment, dry_run, progress
        for place in (source, target):
            if place.process is not None:
                place.process.find()
        raise unsupported(self.backend.name, "cannot copy files")

    # --- services ---

    def forward(self, experiment: str, request: ForwardRequest) -> Tunnel:
        """Forward a local port to a process or a service; see `Cluster.port_forward`.

        By default, only the external addresses of exposed services are supported.
        """
        from symphony.cluster.backend.external_address import find_external_address

        if not request.external:
            raise unsupported(self.backend.name, "cannot forward ports")
        return Tunnel(find_external_address(self.backend, experiment, request.name))
