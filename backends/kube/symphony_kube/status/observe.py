"""From the objects of an experiment to its status. Pure: the time and the objects are given.

`Observer` takes lists and events as they come and computes anew only what they change; `observe` looks once.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.plan.start_order import START, verdict
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State
from symphony_kube.api.errors import one_line
from symphony_kube.render.roster import Roster, Unit, decode
from symphony_kube.status import job_status, pod_status
from symphony_kube.status.job_status import JobView
from symphony_kube.status.pod_status import GONE, PodView, Track
from symphony_kube.status.unit_status import UnitSeen

BACKEND = "kube"
PODS, JOBS = "pods", "jobs"

# Who may start and has not been created after so long, in seconds, has lost its launcher.
LAUNCHER_GONE = 60.0

# Who has not been created, and does not wait for another.
COMING = Track()

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """How an experiment is.

    ``tracks`` has each process by its name, for `symphony.plan.start_order.verdict`. ``until`` is when this is no longer
    true although nothing happens (seconds since the epoch), or None. ``gone`` has the units that were seen and
    are no longer there; ``empty`` says that there is nothing at all.
    """

    status: ExperimentStatus
    tracks: Mapping[str, Track]
    until: float | None = None
    gone: frozenset[str] = frozenset()
    empty: bool = False

    def same(self, other: Observation | None) -> bool:
        """Whether nothing changed."""
        return other is not None and self.status == other.status and self.tracks == other.tracks


def observe(
    experiment: str,
    pods: Iterable[Object],
    jobs: Iterable[Object] = (),
    *,
    now: float,
    roster: Roster | None = None,
) -> Observation:
    """How an experiment is, from its Pods and Jobs as the API lists them."""
    observer = Observer(experiment, roster=roster)
    observer.replace(PODS, pods)
    observer.replace(JOBS, jobs)
    return observer.look(now)


class Observer:
    """What is known of an experiment, from what the API told so far.

    ``roster`` is given by the launcher, who knows best; who is on it and not created is then always waited for.
    """

    def __init__(self, experiment: str, *, roster: Roster | None = None) -> None:
        self._experiment = experiment
        self._launching = roster is not None
        self._roster = roster
        self._pods: dict[str, dict[str, PodView]] = {}
        self._jobs: dict[str, JobView] = {}
        self._gone: dict[str, PodView] = {}
        self._was_ready: dict[tuple[str, str], float] = {}
        self._computed: dict[str, UnitSeen] = {}
        self._statuses: dict[str, tuple[Track, ProcessStatus]] = {}
        # Until something comes or goes: all units, and when the first object was created.
        self._units: Roster | None = None
        self._created: float | None = None

    # --- what the API tells ---

    def replace(self, kind: str, objects: Iterable[Object]) -> None:
        """Take a whole list of Pods or Jobs."""
        if kind == JOBS:
            for unit in list(self._jobs):
                self._drop_job(unit)
            for job in objects:
                self._put_job(job)
            return
        listed = [pod_status.view(pod) for pod in objects]
        there = {view.uid for view in listed}
        for view in self._views():
            if view.uid not in there:
                self._lose(view)
        for view in listed:
            self._put_pod(view)

    def apply(self, kind: str, event: str, changed: Object) -> None:
        """Take an event of a watch: ADDED, MODIFIED or DELETED."""
        if kind == JOBS and event == "DELETED":
            self._drop_job(job_status.view(changed).unit)
        elif kind == JOBS:
            self._put_job(changed)
        elif event == "DELETED":
            self._lose(pod_status.view(changed))
        else:
            self._put_pod(pod_status.view(changed))

    @property
    def has_jobs(self) -> bool:
        """Whether a unit is a Job, or was made by one, as far as is known."""
        self._find_roster()
        return any(view.of_job for view in self._views()) or any(
            unit.job for unit in self._roster or ()
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing of the experiment."""
        return not self._jobs and not any(self._pods.values())

    @property
    def units(self) -> Roster:
        """Those of the roster, and what else there is."""
        return self._all_units()

    def _put_pod(self, view: PodView) -> None:
        views = self._pods.setdefault(view.unit, {})
        old = views.get(view.name)
        if old is not None and old.uid == view.uid:
            view = _remembering(old, view)
        else:
            self._units = None
        views[view.name] = view
        self._gone.pop(view.unit, None)
        self._computed.pop(view.unit, None)

    def _put_job(self, job: Object) -> None:
        view = job_status.view(job)
        if view.unit not in self._jobs:
            self._units = None
        self._jobs[view.unit] = view
        self._computed.pop(view.unit, None)

    def _drop_job(self, unit: str) -> None:
        self._units = None
        self._jobs.pop(unit, None)
        self._computed.pop(unit, None)

    def _lose(self, view: PodView) -> None:
        old = self._pods.get(view.unit, {}).pop(view.name, None)
        if old is not None:
            self._gone[view.unit] = old if view.deleting is None else _remembering(old, view)
        self._units = None
        self._computed.pop(view.unit, None)

    # --- who belongs to it ---

    def _find_roster(self) -> None:
        """Keep the first roster that can be read: it never changes."""
        if self._roster is not None:
            return
        texts = {view.roster for view in (*self._views(), *self._gone.values())}
        texts.update(job.roster for job in self._jobs.values())
        for text in sorted(filter(None, texts)):
            try:
                self._roster = decode(text)
            except ValueError:  # edited by hand: what Pods there are is what is told
                continue
            self._computed.clear()
            return

    def _all_units(self) -> Roster:
        """Those of the roster, and what else there is."""
        if self._units is None:
            self._find_roster()
            named = self._roster or ()
            known = {unit.name for unit in named}
            seen = [*self._pods, *self._jobs, *self._gone]
            extra = [
                name for name in dict.fromkeys(seen) if name not in known and self._is_there(name)
            ]
            self._units = (*named, *(self._unit_of(name) for name in sorted(extra, key=self._age)))
            times = [
                *(view.created for view in self._views()),
                *(job.created for job in self._jobs.values()),
            ]
            self._created = min(times, default=None)
        return self._units

    def _is_there(self, unit: str) -> bool:
        return bool(self._pods.get(unit)) or unit in self._jobs or unit in self._gone

    def _age(self, unit: str) -> tuple[float, str]:
        found = [view.created for view in self._pods.get(unit, {}).values()]
        return min(found, default=0.0), unit

    def _unit_of(self, name: str) -> Unit:
        """A unit of which only its objects tell."""
        views = [
            *self._pods.get(name, {}).values(),
            *([self._gone[name]] if name in self._gone else []),
        ]
        processes = tuple(views[-1].containers) if views else self._jobs[name].processes
        return Unit(
            name=name,
            group=processes != (name,),
            processes=processes,
            job=name in self._jobs or any(view.of_job for view in views),
        )

    # --- how it is ---

    def look(self, now: float) -> Observation:
        """How the experiment is at a time, in seconds since the epoch."""
        units = self._all_units()
        watched = {
            name
            for unit in units
            for name, condition in unit.starts_after.items()
            if condition == "ready"
        }
        tracks: dict[str, Track] = {}
        missing: list[Unit] = []
        ends: list[float] = []
        for unit in units:
            computed = self._compute(unit, watched, now)
            if computed is None:
                missing.append(unit)
                tracks.update(dict.fromkeys(unit.processes, COMING))
                continue
            tracks.update(computed.tracks)
            if computed.until is not None:
                ends.append(computed.until)
        if missing:
            ends.extend(self._wait_in_order(missing, tracks, now))
        return Observation(
            status=self._status(units, tracks),
            tracks=tracks,
            until=min(ends, default=None),
            gone=frozenset(unit for unit in self._gone if not self._pods.get(unit)),
            empty=self.empty,
        )

    def _compute(self, unit: Unit, watched: set[str], now: float) -> UnitSeen | None:
        """The processes of a unit that there is or was; None for one that has not been created."""
        known = self._computed.get(unit.name)
        if known is not None and (known.until is None or now < known.until):
            return known
        if not self._is_there(unit.name):
            return None
        pods = sorted(
            self._pods.get(unit.name, {}).values(), key=lambda view: (view.created, view.name)
        )
        computed = UnitSeen(
            unit, pods, self._jobs.get(unit.name), self._gone.get(unit.name), watched, now
        )
        computed.remember_ready(self._was_ready)
        self._computed[unit.name] = computed
        return computed

    def _wait_in_order(
        self, missing: list[Unit], tracks: dict[str, Track], now: float
    ) -> list[float]:
        """Say of units that have not been created why, in ``tracks``; when that is no longer true."""
        ends = []
        latest = self._latest()
        for unit in _in_order(missing):
            track, until = self._not_created(unit, tracks, latest, now)
            tracks.update(dict.fromkeys(unit.processes, track))
            if until is not None:
                ends.append(until)
        return ends

    def _not_created(
        self, unit: Unit, tracks: Mapping[str, Track], latest: float, now: float
    ) -> tuple[Track, float | None]:
        after = {name: condition for name, condition in unit.starts_after.items() if name in tracks}
        found = verdict(after, tracks)
        if found.word == "never":
            # Each reason holds that of the one before it.
            return Track(state=State.FAILED, reason=one_line(found.reason, limit=300)), None
        if found is not START or self._launching:
            return Track(reason=found.reason) if found.reason else COMING, None
        held = max(
            [
                latest,
                *(_held_since(condition, tracks[name], now) for name, condition in after.items()),
            ]
        )
        if now < held + LAUNCHER_GONE:
            return COMING, held + LAUNCHER_GONE
        why = "never started: its launcher ended before it was created"
        if not after:
            why = f"{GONE}: its Pod is not there; it was deleted, or its launcher ended before it was created"
        return Track(state=State.UNKNOWN, reason=why), None

    def _latest(self) -> float:
        """When the latest object was created: then its launcher was alive."""
        pods = (view.created for view in (*self._views(), *self._gone.values()))
        return max((*pods, *(job.created for job in self._jobs.values())), default=0.0)

    def _views(self) -> list[PodView]:
        return [view for views in self._pods.values() for view in views.values()]

    def _status(self, units: Roster, tracks: Mapping[str, Track]) -> ExperimentStatus:
        return ExperimentStatus(
            name=self._experiment,
            backend=BACKEND,
            processes=tuple(
                self._process(name, unit.name if unit.group else None, tracks[name])
                for unit in units
                for name in unit.processes
            ),
            created=self._created,
            note="is being deleted" if self._is_being_deleted() else "",
        )

    def _is_being_deleted(self) -> bool:
        """Whether all Pods are."""
        views = (view for views in self._pods.values() for view in views.values())
        first = next(views, None)
        return (
            first is not None
            and first.deleting is not None
            and all(view.deleting for view in views)
        )

    def _process(self, name: str, group: str | None, track: Track) -> ProcessStatus:
        known = self._statuses.get(name)
        if known is None or (known[0] is not track and known[0] != track):
            status = ProcessStatus(
                name=name,
                group=group,
                state=track.state,
                ready=track.ready,
                exit_code=track.exit_code,
                reason=track.reason,
                restarts=track.restarts,
                started=track.started,
                ended=track.ended,
                not_ready_in_time=track.state is State.RUNNING and track.never_ready and not track.ready,
            )
            known = self._statuses[name] = (track, status)
        return known[1]


def _remembering(old: PodView, new: PodView) -> PodView:
    """What is told now, and what was told before of the same Pod and is no longer: a kubelet may wipe statuses."""
    found = dict(new.containers)
    for name, track in new.containers.items():
        earlier = old.containers.get(name)
        if (
            earlier is not None
            and track.started is None
            and earlier.started is not None
            and track.state in ENDED
        ):
            found[name] = replace(
                track, started=earlier.started, restarts=max(track.restarts, earlier.restarts)
            )
    before = old.before
    if new.deleting is not None and old.deleting is None:
        before = old.containers
    return replace(new, containers=found, before=before)


def _held_since(condition: str, track: Track, now: float) -> float:
    """Since when a condition that holds has held; ``now`` where nobody knows."""
    times = {"ready": track.ready_since, "started": track.started, "succeeded": track.ended}
    return times[condition] or now


def _in_order(units: list[Unit]) -> list[Unit]:
    """Units after those that they wait for."""
    if not any(unit.starts_after for unit in units):
        return units
    owners = {process: unit.name for unit in units for process in unit.processes}
    graph = {
        unit.name: {owners[name] for name in unit.starts_after if name in owners} for unit in units
    }
    by_name = {unit.name: unit for unit in units}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError:  # no launch makes one
        return units
