"""Record the requests of a command in the Pods and Jobs that they concern."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.state.control_state import Control
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.user_requests.control_changes import with_later_stop, without_start
from symphony_kube.user_requests.targets import find_target

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


class RequestRecorder:
    """Records the requests of the command ``verb``.

    ``manifests`` maps the names of units to the Pods or Jobs that replace them. ``requested`` maps
    the units of the command to the numbers of the attempts that its requests concern.
    """

    def __init__(
        self, experiment: KubeExperiment, verb: str, manifests: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._experiment = experiment
        self._verb = verb
        self._manifests = manifests
        self.requested: dict[str, int] = {}

    def record(
        self,
        units: Mapping[str, UnitStatus],
        change: Callable[[str, Control], Control],
        deadline: float | None,
    ) -> None:
        """Record a request for each unit. ``change`` receives the name of the unit.
        ``deadline`` is that of the experiment, in seconds since the epoch, or None.

        The request is recorded again if another command has replaced the unit in the meantime. The
        first unit also records the others, so that the status shows if the client is killed before
        it has recorded all requests.
        """
        remaining = _without_other_ranks(units)
        others = {name: unit for name, unit in units.items() if name not in remaining}
        if len(remaining) > 1:
            self._record_first(remaining, change, deadline)
        while remaining:
            in_parallel(
                lambda item: self._record_one(*item, partial(change, item[0]), deadline),
                list(remaining.items()),
                threads=self._experiment.api.connections,
            )
            missed = [name for name in remaining if name not in self.requested]
            if not missed:
                break
            target = find_target(self._experiment, missed, self._verb)
            remaining = {
                name: unit for name, unit in target.existing.items() if name in set(missed)
            }
        self.requested.update((name, unit.attempt.number) for name, unit in others.items())

    def _record_first(
        self,
        units: dict[str, UnitStatus],
        change: Callable[[str, Control], Control],
        deadline: float | None,
    ) -> None:
        """Record the request for one unit, and remove the unit from ``units``."""
        name = next((name for name, unit in units.items() if not unit.control.replaced), None)
        if name is None:
            return
        first = units.pop(name)
        others = " ".join(f"{key}:{unit.attempt.number}" for key, unit in units.items())
        if len(others) > attempts.MAX_OTHERS_CHARS:
            others = ""

        def with_others(control: Control) -> Control:
            return replace(change(name, control), command=self._verb, others=others)

        self._record_one(name, first, with_others, deadline)
        if name not in self.requested:
            # Another command has replaced the unit.
            units[name] = first

    def _record_one(
        self,
        name: str,
        unit: UnitStatus,
        change: Callable[[Control], Control],
        deadline: float | None,
    ) -> None:
        if unit.control.replaced:
            # A client was killed before it had created the next attempt.
            attempts.replace_attempt(self._experiment, unit, deadline=deadline)
            # The replacement can have another manifest than the requested one.
            if self._verb in ("stop", "change"):
                return
            self.requested[name] = unit.attempt.number
            return
        manifest = self._manifests.get(name)
        if attempts.request(self._experiment, unit, change, manifest) is not None:
            self.requested[name] = unit.attempt.number

    def cancel_starts(self, units: Collection[UnitStatus]) -> None:
        """Record that units are not to be started again."""
        in_parallel(self._cancel_start, units, threads=self._experiment.api.connections)

    def _cancel_start(self, unit: UnitStatus) -> None:
        change = partial(without_start, now=self._experiment.api.now(), has_ended=unit.has_ended)
        attempts.request(self._experiment, unit, change)

    def stop_before_start(
        self, units: Mapping[str, UnitStatus], kill_times: Mapping[str, float]
    ) -> None:
        """Record that units are stopped which will be started again.

        ``kill_times`` contains the times at which they are killed, in seconds since the epoch, or
        infinity if their nodes do this.
        """
        in_parallel(
            lambda name: self._stop_later(units[name], kill_times[name]),
            units,
            threads=self._experiment.api.connections,
        )

    def _stop_later(self, unit: UnitStatus, kill_at: float) -> None:
        change = partial(with_later_stop, now=self._experiment.api.now(), kill_at=kill_at)
        attempts.request(self._experiment, unit, change)


def _without_other_ranks(units: Mapping[str, UnitStatus]) -> dict[str, UnitStatus]:
    """Return units without the ranks of a JobSet after its first, which share its requests."""
    found: dict[str, UnitStatus] = {}
    uids: set[str] = set()
    for name, unit in units.items():
        if unit.job is None or unit.job.uid not in uids:
            found[name] = unit
        if unit.job is not None:
            uids.add(unit.job.uid)
    return found
