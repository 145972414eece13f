"""Reserved ports that a launch can use: the ports of experiments that are replaced or about to
end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, NotFound
from symphony.host.processes.control import wait_for_exit
from symphony.host.processes.identity import ProcessId
from symphony.host.run import directory
from symphony.host.run.directory import RunDirectory


class ExperimentPorts:
    """The ports of the running experiment in a run directory.

    Both sets are empty if ``run`` is None or if its manifest cannot be read.
    """

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run

    @functools.cached_property
    def reserved(self) -> frozenset[int]:
        """Return the ports of the experiment's services.

        Only a running supervisor holds the leases on the ports. Without a supervisor, another
        experiment may have leased them.
        """
        if self._run is None or self._run.supervisor() is None:
            return frozenset()
        return frozenset(_service_ports(self._manifest))

    @functools.cached_property
    def listening(self) -> frozenset[int]:
        """Return the ports on which only processes of the experiment listen.

        The result includes ports that are not declared as services.
        """
        from symphony.host.processes.tree import exclusive_listening_ports

        run_id: str | None = self._manifest.get("run_id")
        return exclusive_listening_ports(run_id) if run_id else frozenset()

    @functools.cached_property
    def _manifest(self) -> dict[str, Any]:
        """Return the manifest, or an empty mapping if it is damaged or was just deleted."""
        if self._run is None:
            return {}
        try:
            return self._run.load_manifest()
        except (BackendError, OSError):
            return {}


class FinishingPorts:
    """The ports of experiments that have ended, but whose supervisors have not exited yet.

    A supervisor reports the end of the last process before it searches for processes that were left
    behind. A caller that waits for the end of an experiment can immediately launch the next one on
    the same ports. That launch waits for the supervisor, for at most ``timeout`` seconds.
    """

    def __init__(self, root: Path, timeout: float) -> None:
        self._root = root
        self._timeout = timeout

    def wait_until_released(self, port: int) -> bool:
        """Wait until a port is released.

        Return False if no finishing supervisor holds the port, or if the wait takes too long.
        """
        supervisor = self._supervisors.pop(port, None)
        return supervisor is not None and wait_for_exit(supervisor, self._timeout)

    @functools.cached_property
    def _supervisors(self) -> dict[int, ProcessId]:
        """Return a mapping from ports to the supervisors that are about to exit."""
        found: dict[int, ProcessId] = {}
        for run in directory.find_all(self._root):
            supervisor = run.supervisor()
            if supervisor is not None:
                found.update(dict.fromkeys(_finishing_ports(run), supervisor))
        return found


def _finishing_ports(run: RunDirectory) -> list[int]:
    """Return the ports of an experiment if all of its processes have exited, and otherwise an
    empty list.
    """
    from symphony.host.run.status import StatusReader

    try:
        if StatusReader(run).read().ended:
            return list(_service_ports(run.load_manifest()))
    except (BackendError, NotFound, OSError):
        # The experiment was just deleted, or its record is damaged.
        return []
    return []


def _service_ports(manifest: dict[str, Any]) -> Iterable[int]:
    addresses: dict[str, str] = manifest.get("services", {})
    return (int(address.rpartition(":")[2]) for address in addresses.values())
