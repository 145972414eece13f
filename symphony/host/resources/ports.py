"""What experiments of this machine hold that a launch would find free all the same."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, NotFound
from symphony.host.processes.identity import ProcessId
from symphony.host.run import directory
from symphony.host.run.directory import RunDirectory


class OwnPorts:
    """The ports of the experiment in a run directory, as far as it lives; none where there is none."""

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run

    @functools.cached_property
    def promised(self) -> frozenset[int]:
        """Those of its services. Its supervisor leases them: without one they may be another's by now."""
        if self._run is None or self._run.supervisor() is None:
            return frozenset()
        return frozenset(_of_services(self._manifest))

    @functools.cached_property
    def listened(self) -> frozenset[int]:
        """Those on which its processes listen, and nobody else; also those that no service told of."""
        from symphony.host.processes.tree import listened

        run_id: str | None = self._manifest.get("run_id")
        return listened(run_id) if run_id else frozenset()

    @functools.cached_property
    def _manifest(self) -> dict[str, Any]:
        """Empty where it cannot be read: what is broken, or just deleted, gives no port free."""
        try:
            return self._run.load_manifest() if self._run else {}
        except (BackendError, OSError):
            return {}


class EndingPorts:
    """The ports of experiments below ``root`` of which all has ended, and whose supervisors are about to let go.

    Who has waited for the end of an experiment may launch the next on its ports: the supervisor, which has yet to look
    for what was left behind, is then waited for, at most ``patience`` seconds.
    """

    def __init__(self, root: Path, patience: float) -> None:
        self._root, self._patience = root, patience

    def wait_for(self, port: int) -> bool:
        """Wait until a port was let go of; False where nobody is about to."""
        from symphony.host.stop import wait_for_end

        supervisor = self._supervisors.pop(port, None)
        return supervisor is not None and wait_for_end(supervisor, self._patience)

    @functools.cached_property
    def _supervisors(self) -> dict[int, ProcessId]:
        return {
            port: supervisor
            for run in directory.find_all(self._root)
            for port, supervisor in _ending(run)
        }


def _ending(run: RunDirectory) -> Iterator[tuple[int, ProcessId]]:
    from symphony.host.run.observer import Observer

    supervisor = run.supervisor()
    try:
        if supervisor is not None and Observer(run).look().ended:
            yield from ((port, supervisor) for port in _of_services(run.load_manifest()))
    except (BackendError, NotFound, OSError):  # just deleted, or broken
        return


def _of_services(manifest: dict[str, Any]) -> Iterator[int]:
    addresses: dict[str, str] = manifest.get("services", {})
    return (int(address.rpartition(":")[2]) for address in addresses.values())
