"""Create the next attempts of units when they can start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.state.observe import Observation

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


class Replacer:
    """Creates the next attempts of units. Each object of this class creates an attempt once."""

    def __init__(self, experiment: KubeExperiment) -> None:
        self._experiment = experiment
        self._replaced: set[tuple[str, int]] = set()

    def replace(
        self,
        observation: Observation,
        units: Iterable[str],
        *,
        now: float,
        round: int | None = None,
        begun: Iterable[str] = (),
    ) -> None:
        """Replace the attempts of ``units`` whose next attempt is requested for the time ``now`` or
        before.

        ``begun`` contains the units in which the creation of the next attempt has begun, but the
        client or supervisor may have been killed. It is completed. ``round`` is the number of times
        that the experiment has been restarted, or None if only its attempts show this.
        """
        statuses = observation.unit_statuses
        names = dict.fromkeys(begun)
        for name in units:
            status = statuses.get(name)
            if status is not None and status.waits_for_start and status.control.start <= now:
                names[name] = None
        attempts_of = {name: (name, statuses[name].attempt.number) for name in names}
        new = [name for name in names if attempts_of[name] not in self._replaced]
        if round is None:
            round = max((status.attempt.round for status in statuses.values()), default=0)
        latest, deadline = round, observation.status.deadline

        def replace_one(name: str) -> None:
            unit = statuses[name]
            attempts.replace_attempt(self._experiment, unit, deadline=deadline, round=latest)

        in_parallel(replace_one, new, threads=self._experiment.api.connections)
        self._replaced.update(attempts_of[name] for name in new)
