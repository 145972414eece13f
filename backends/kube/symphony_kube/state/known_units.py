"""The units of an experiment, from its roster and from its objects. Pure."""

from __future__ import annotations

from symphony_kube.render.roster import Roster, Unit, ranks_of_job_sets
from symphony_kube.state.observed_objects import ObservedObjects
from symphony_kube.state.observed_record import ObservedRecord


class KnownUnits:
    """The units of an experiment.

    If ``supervising`` is true, only the units of the roster count. ``created`` is the time at which
    the oldest object was created, in seconds since the epoch, or None. ``job_sets`` contains the
    ranks of each JobSet in the roster. Both are those of the latest result of `units`.
    """

    def __init__(
        self, objects: ObservedObjects, record: ObservedRecord, *, supervising: bool
    ) -> None:
        self._objects = objects
        self._record = record
        self._supervising = supervising
        self.job_sets: dict[str, dict[str, Unit]] = {}
        self.created: float | None = None
        # The latest result, and the versions of the objects and of the record that it is for.
        self._units: Roster = ()
        self._versions: tuple[int, int] | None = None

    @property
    def units(self) -> Roster:
        """The units of the roster, followed by the units that are known only from objects."""
        versions = self._objects.version, self._record.version
        if versions != self._versions:
            self._units = self._find_units()
            self.created = min(self.creation_times(), default=None)
            self._versions = self._objects.version, self._record.version
        return self._units

    @property
    def launched(self) -> float:
        """When the oldest object was created, in seconds since the epoch, or 0 if it is unknown."""
        return 0.0 if not self.units or self.created is None else self.created

    @property
    def has_jobs(self) -> bool:
        """True if any known unit is a Job."""
        roster = self._record.find_roster() or ()
        if any(unit.job for unit in roster):
            return True
        in_job_sets = {unit.name for unit in roster if unit.job_set}
        return any(pod.job and pod.unit not in in_job_sets for pod in self._objects.pods())

    @property
    def has_job_sets(self) -> bool:
        """True if any known unit is in a JobSet."""
        return any(unit.job_set for unit in self._record.find_roster() or ())

    @property
    def missing_jobs(self) -> list[str]:
        """The units that are Jobs and about which nothing is known."""
        return [unit.name for unit in self.units if unit.job and not self.has_existed(unit.name)]

    def has_existed(self, unit: str) -> bool:
        """Return whether a unit has objects, or is known to have had some."""
        return self._is_known(unit) or unit in self._objects.removed_jobs

    def creation_times(self) -> list[float]:
        """Return when the experiment was launched and its objects were created."""
        times = [pod.created for pod in self._objects.pods()]
        times += [job.created for job in self._objects.jobs()]
        stored = self._record.stored
        if stored is not None and stored.created is not None:
            times.append(stored.created)
        return times

    def _find_units(self) -> Roster:
        roster = self._record.find_roster() or ()
        self.job_sets = {}
        for job_set, ranks in ranks_of_job_sets(roster).items():
            self.job_sets[job_set] = {rank.name: rank for rank in ranks}
        if self._supervising:
            return roster
        in_roster = {unit.name for unit in roster}
        others = [
            name
            for name in self._objects.unit_names
            if name not in in_roster and self._is_known(name)
        ]
        others.sort(key=self._creation_order)
        return (*roster, *(self._unit_from_objects(name) for name in others))

    def _is_known(self, unit: str) -> bool:
        if self._objects.has_any_of(unit):
            return True
        if unit not in self._objects.deleted:
            return False
        # A change of the experiment removes units.
        roster = self._record.find_roster() or ()
        is_removed = self._record.roster_revision > 0 and all(unit != item.name for item in roster)
        return not is_removed

    def _creation_order(self, unit: str) -> tuple[float, str]:
        times = [pod.created for pod in self._objects.pods_of(unit)]
        return min(times, default=0.0), unit

    def _unit_from_objects(self, name: str) -> Unit:
        """Return a unit that is not in the roster, reconstructed from its objects."""
        pods, jobs = self._objects.pods_of(name), self._objects.jobs_of(name)
        if name in self._objects.deleted:
            pods.append(self._objects.deleted[name])
        processes = tuple(pods[-1].containers) if pods else jobs[-1].processes
        is_job = bool(jobs) or any(pod.job for pod in pods)
        return Unit(name=name, group=processes != (name,), processes=processes, job=is_job)
