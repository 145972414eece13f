"""What an experiment of this machine holds that a launch of its own name would find free."""

from __future__ import annotations

import functools
from typing import Any

from symphony.errors import BackendError
from symphony.host.rundir import RunDirectory


class OwnPorts:
    """The ports of the experiment in a run directory, as far as it lives; none where there is none."""

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run

    @functools.cached_property
    def promised(self) -> frozenset[int]:
        """Those of its services. Its supervisor leases them: without one they may be another's by now."""
        if self._run is None or self._run.supervisor() is None:
            return frozenset()
        addresses: dict[str, str] = self._manifest.get("services", {})
        return frozenset(int(address.rpartition(":")[2]) for address in addresses.values())

    @functools.cached_property
    def listened(self) -> frozenset[int]:
        """Those on which its processes listen, and nobody else; also those that no service told of."""
        from symphony.host.trees import listened

        run_id: str | None = self._manifest.get("run_id")
        return listened(run_id) if run_id else frozenset()

    @functools.cached_property
    def _manifest(self) -> dict[str, Any]:
        """Empty where it cannot be read: what is broken, or just deleted, gives no port free."""
        try:
            return self._run.load_manifest() if self._run else {}
        except (BackendError, OSError):
            return {}
