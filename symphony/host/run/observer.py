"""How an experiment of this machine is: what its events tell, and whether its supervisor lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symphony.cluster.matching import experiment_not_found
from symphony.host.processes.identity import ProcessId
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import Reader, apply, fold
from symphony.host.run.status import status
from symphony.status import ENDED, ExperimentStatus


class Observer:
    """Looks at one experiment again and again, reading only what is new."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._reader = Reader(run.events)
        try:
            self._manifest = run.load_manifest()
        except FileNotFoundError:  # deleted between finding and reading
            raise experiment_not_found(run.name, []) from None
        self._state = fold([process["name"] for process in self._manifest["processes"]], [])

    def look(self) -> ExperimentStatus:
        """The status as it is now."""
        supervised = self._run.locked()
        for event in self._reader.new():
            apply(self._state, event)
        elsewhere = None if supervised else self._run.elsewhere()
        orphaned = not supervised and not self._state.finished and elsewhere is None
        return status(
            self._manifest,
            self._state,
            orphans=self._orphans() if orphaned else None,
            elsewhere=elsewhere,
        )

    def _orphans(self) -> dict[str, ProcessId]:
        from symphony.host.processes.tree import leaders

        return leaders(self._manifest["run_id"])

    def ended(self, names: Sequence[str]) -> Callable[[], bool]:
        """A function that tells whether some processes will write no more."""
        wanted = frozenset(names)

        def over() -> bool:
            return not self._run.path.exists() or all(
                process.state in ENDED for process in self.look() if process.name in wanted
            )

        return over
