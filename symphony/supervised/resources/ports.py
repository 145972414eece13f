"""Reserved ports that a launch can nevertheless use.

These are the ports of the experiment that the launch replaces, and the ports of experiments that
have finished but whose supervisors have not exited yet.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, NotFound
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.resources.unsupervised import service_ports


class ExperimentPorts:
    """The ports of the experiment whose run directory is ``run``.

    ``reserved`` and ``listening`` are empty if ``run`` is None or if the manifest in ``run`` cannot
    be read.
    """

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run

    @functools.cached_property
    def reserved(self) -> frozenset[int]:
        """The ports of the experiment's services.

        The leases on the ports are held only while the supervisor is running. Without a supervisor,
        the set is empty, because no process holds the leases.
        """
        if self._run is None or _running_supervisor(self._run) is None:
            return frozenset()
        return frozenset(service_ports(self._manifest))

    @functools.cached_property
    def listening(self) -> frozenset[int]:
        """The ports on which only processes of the experiment listen.

        The set includes ports that are not declared as services.
        """
        from symphony.supervised.processes.tree import exclusive_listening_ports
        from symphony.supervised.record.running_processes import running_processes

        if self._run is None or not self._manifest:
            return frozenset()
        return exclusive_listening_ports(running_processes(self._run, self._manifest))

    @functools.cached_property
    def _manifest(self) -> dict[str, Any]:
        """The manifest, or an empty mapping if the manifest is damaged or has just been deleted."""
        if self._run is None:
            return {}
        try:
            return self._run.load_manifest()
        except (BackendError, NotFound):
            return {}


class FinishingPorts:
    """The ports of experiments that have finished, but whose supervisors have not exited yet.

    A supervisor first reports that the last process has exited, and then searches for processes
    that were left behind. A caller that waits for an experiment to finish can therefore launch the
    next experiment on the same ports before the supervisor exits. That launch waits at most
    ``timeout`` seconds for the supervisor to exit.
    """

    def __init__(self, root: Path, timeout: float) -> None:
        self._root = root
        self._timeout = timeout

    def wait_until_released(self, port: int) -> None:
        """Wait until the finishing supervisor that holds a port, if there is one, has exited.

        The port is still held if the supervisor does not exit in time.
        """
        supervisor = self._supervisors.pop(port, None)
        if supervisor is not None:
            wait_for_exit(supervisor, self._timeout)

    @functools.cached_property
    def _supervisors(self) -> dict[int, ProcessId]:
        """A mapping from ports to the finishing supervisors that hold them."""
        found: dict[int, ProcessId] = {}
        for run in directory.find_all(self._root):
            supervisor = _running_supervisor(run)
            if supervisor is not None:
                found.update(dict.fromkeys(_finishing_ports(run), supervisor))
        return found


def _running_supervisor(run: RunDirectory) -> ProcessId | None:
    """Return the supervisor of an experiment, or None if none is running or the record is damaged.

    A damaged record of one experiment must not prevent the launch of another one.
    """
    try:
        return run.supervisor()
    except BackendError:
        return None


def _finishing_ports(run: RunDirectory) -> list[int]:
    """Return an experiment's ports if it is finishing or has finished, or an empty list."""
    from symphony.supervised.record.status import StatusReader

    try:
        reader = StatusReader(run)
        # The supervisor of a stopped experiment keeps the ports for a later start.
        if reader.read().ended and not reader.waits_for_start:
            return service_ports(run.load_manifest())
    except (BackendError, NotFound):
        # The experiment has just been deleted, or its record is damaged.
        return []
    return []
