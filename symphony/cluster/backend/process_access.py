"""The part of a backend with which users reach processes: commands, terminals, files and ports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from symphony.cluster.matching import find_status
from symphony.cluster.results import Tunnel
from symphony.errors import NotFound, Unsupported
from symphony.support.names import did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.cluster.cluster import Progress
    from symphony.cluster.results import ExecResult
    from symphony.plan.topology import Topology
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


class Access:
    """The methods that reach processes. All of them are optional.

    ``name`` is the name of the backend.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    # --- processes ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command in the environment and the working directory of a process.

        See `Cluster.exec_command`.
        """
        del experiment, argv, interactive
        process.find()
        raise self._unsupported("cannot run commands in the environment of a process")

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Attach the terminal of this program to a process.

        With ``dry_run``, only raise the error if no terminal can be attached.
        """
        found = process.find()
        del experiment
        if not dry_run:
            raise self._unsupported(
                f"cannot attach a terminal to {found.name!r}; 'symphony exec' runs a command in "
                "its environment, 'symphony logs -f' follows its log"
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
        raise self._unsupported("cannot copy files")

    # --- services ---

    def forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None,
        *,
        local_port: int | None,
        on_error: Callable[[str], None] | None,
    ) -> Tunnel:
        """Forward a local port to a process or a service; see `Cluster.port_forward`."""
        del experiment, process_or_service, port, local_port, on_error
        raise self._unsupported("cannot forward ports")

    def external_addresses(self, experiment: str) -> Mapping[str, str | None]:
        """Return the external addresses ``host:port`` of the exposed services of an experiment.

        An address is None if it is not known yet.
        """
        del experiment
        raise self._unsupported("cannot expose services")

    def external_address(self, experiment: str, service: str) -> str:
        """Return the external address of an exposed service.

        By default, it is one of `external_addresses`. Raises `NotFound` if the experiment does not
        expose the service, or if the address is not known yet.
        """
        addresses = self.external_addresses(experiment)
        if service not in addresses:
            raise self._not_exposed(experiment, service, addresses)
        address = addresses[service]
        if address is None:
            raise NotFound(
                f"service {service!r} of {experiment!r} has no external address yet; try again"
            )
        return address

    def visit(
        self, experiment: str, service: str, *, on_error: Callable[[str], None] | None
    ) -> Tunnel:
        """Return a tunnel to an exposed service; see `Cluster.visit`.

        By default, it consists of the external address.
        """
        del on_error
        return Tunnel(self.external_address(experiment, service))

    def topology(self, experiment: str) -> Topology:
        """Return the processes, groups and services of a launched experiment."""
        raise self._unsupported(f"cannot report the connections of {experiment!r}")

    # --- for the methods above ---

    def _unsupported(self, what: str) -> Unsupported:
        """Return the error for a method that the backend does not have. ``what`` says what it
        cannot do.
        """
        return Unsupported(f"the {self.name} backend {what}")

    def _not_exposed(self, experiment: str, service: str, exposed: Collection[str]) -> NotFound:
        bound: Iterable[str] = ()
        with contextlib.suppress(Unsupported):
            bound = [found.name for found in self.topology(experiment).services]
        if service in bound:
            return NotFound(
                f"experiment {experiment!r} binds but does not expose {service!r}; "
                f"for its address, use: symphony forward {experiment} {service}"
            )
        hint = did_you_mean(service, exposed) or f"; exposed are {join_names(exposed)}"
        return NotFound(f"experiment {experiment!r} does not expose {service!r}{hint}")
