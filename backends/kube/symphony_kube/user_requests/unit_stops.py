"""The units that a command stops, and whether it has recorded their stops. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from symphony.errors import BackendError
from symphony.plan.decisions.request_steps import TOLERANCE_SECONDS
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus


class UnitStops:
    """The units that a command stops, each when its turn comes.

    If ``is_final`` is true, they are not started again. Times are in seconds since the epoch.
    """

    def __init__(self, *, is_final: bool) -> None:
        self._is_final = is_final
        # The numbers of the attempts that the command stops when their turn comes.
        self._stopped: dict[str, int] = {}
        # The times at which those are killed whose stop the command has recorded.
        self._kill_times: dict[tuple[str, int], float] = {}

    @property
    def is_empty(self) -> bool:
        """True if the command stops nothing."""
        return not self._stopped

    def add(self, units: Mapping[str, UnitStatus]) -> None:
        """Also stop the present attempts of units."""
        self._stopped.update((name, unit.attempt.number) for name, unit in units.items())

    def note_restarts(self, kill_times: Mapping[str, float]) -> set[str]:
        """Note the units whose stops are recorded together with their starts.

        Return those that are stopped later.
        """
        for name, kill_at in kill_times.items():
            if name in self._stopped:
                self._kill_times[name, self._stopped[name]] = kill_at
        return {name for name in self._stopped if name not in kill_times}

    def find_remaining(self, observation: Observation) -> dict[str, UnitStatus]:
        """Return the units that the command stops, without those that have been started again.

        If a supervisor or another command has started one again before `stop` has recorded its
        stop, the new attempt is stopped.
        """
        statuses = observation.unit_statuses
        found = {}
        for name, number in list(self._stopped.items()):
            unit = statuses.get(name)
            if unit is None:
                continue
            is_recorded = (name, number) in self._kill_times
            if self._is_final and not is_recorded:
                self._stopped[name] = unit.attempt.number
            if not is_new(unit, self._stopped[name]):
                found[name] = unit
        return found

    def take_due(
        self, observation: Observation, stops: Mapping[str, float]
    ) -> tuple[dict[str, UnitStatus], dict[str, float]]:
        """Return the units whose stop is to be recorded now, with the times at which they are
        killed. They count as recorded from now on.

        ``stops`` contains the units whose turn has come, with these times. Units that have ended
        are contained in the result if their start is cancelled.
        """
        wave: dict[str, UnitStatus] = {}
        kill_times: dict[str, float] = {}
        for name, unit in self.find_remaining(observation).items():
            kill_at = stops.get(name)
            is_cancelled = self._is_final and unit.has_ended
            if is_cancelled and not is_stopped_for_good(unit):
                kill_at = math.inf
            if kill_at is not None and self._is_to_record(name, unit, kill_at):
                wave[name], kill_times[name] = unit, kill_at
                self._kill_times[name, unit.attempt.number] = kill_at
        return wave, kill_times

    def confirm(
        self,
        units: Iterable[str],
        requested: Mapping[str, int],
        kill_times: Mapping[str, float],
    ) -> None:
        """Note in which attempts the final stops of units were recorded.

        Another command can have replaced or removed a unit in the meantime.
        """
        for name in units:
            del self._stopped[name]
            if name in requested:
                self._stopped[name] = requested[name]
                self._kill_times[name, requested[name]] = kill_times[name]

    def have_all_ended(self, observation: Observation) -> bool:
        """Return whether all units have stopped. Raises `BackendError` if a Pod was deleted."""
        return all(self._has_stopped(name, observation) for name in self._stopped)

    def _has_stopped(self, name: str, observation: Observation) -> bool:
        unit = observation.unit_statuses.get(name)
        if unit is None:
            raise BackendError(f"the Pod of {name!r} was deleted")
        number = self._stopped[name]
        if is_new(unit, number):
            return True
        is_recorded = (name, number) in self._kill_times
        return unit.has_ended and (is_recorded or is_stopped_for_good(unit))

    def _is_to_record(self, name: str, unit: UnitStatus, kill_at: float) -> bool:
        """Return whether the stop of a unit is not recorded yet, or with a later time."""
        recorded = self._kill_times.get((name, unit.attempt.number))
        return recorded is None or kill_at < recorded - TOLERANCE_SECONDS


def is_new(unit: UnitStatus, number: int) -> bool:
    """Return whether a unit has been started again after its attempt ``number``.

    The requests for a JobSet remain when its controller restarts it.
    """
    return unit.attempt.number > number and not unit.control.stop


def is_stopped_for_good(unit: UnitStatus) -> bool:
    """Return whether a unit has ended and will not be started again."""
    return unit.has_ended and not unit.control.start and unit.retry is None
