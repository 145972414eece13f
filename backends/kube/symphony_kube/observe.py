"""From the objects of an experiment to its status. Pure: the time and the objects are given.

`Observer` takes lists and events as they come and computes anew only what they change; `observe` looks once.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.order import START, verdict
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State
from symphony_kube import containers, jobs
from symphony_kube.containers import GONE, PodView, Track
from symphony_kube.errors import one_line
from symphony_kube.jobs import JobView
from symphony_kube.roster import Roster, Unit, decode

BACKEND = "kube"
PODS, JOBS = "pods", "jobs"

# Who may start and has not been created after so long, in seconds, has lost its launcher.
LAUNCHER_GONE = 60.0
# A Pod that is still there so long after it should be gone, in seconds, has lost its node.
OVERDUE = 30.0
# A Job that has made no Pod after so long, in seconds, is held up by something that only its events tell.
HELD_UP = 10.0

POD_DELETED = f"{GONE}: its Pod was deleted"
DELETING = "its Pod is being deleted"

# Who has not been created, and does not wait for another.
COMING = Track()

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """How an experiment is.

    ``tracks`` has each process by its name, for `symphony.order.verdict`. ``until`` is when this is no longer
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
        self._computed: dict[str, _Unit] = {}
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
        listed = [containers.view(pod) for pod in objects]
        there = {view.uid for view in listed}
        for view in self._views():
            if view.uid not in there:
                self._lose(view)
        for view in listed:
            self._put_pod(view)

    def apply(self, kind: str, event: str, changed: Object) -> None:
        """Take an event of a watch: ADDED, MODIFIED or DELETED."""
        if kind == JOBS and event == "DELETED":
            self._drop_job(jobs.view(changed).unit)
        elif kind == JOBS:
            self._put_job(changed)
        elif event == "DELETED":
            self._lose(containers.view(changed))
        else:
            self._put_pod(containers.view(changed))

    @property
    def has_jobs(self) -> bool:
        """Whether a unit is a Job, or was made by one, as far as is known."""
        self._find_roster()
        return any(view.of_job for view in self._views()) or any(unit.job for unit in self._roster or ())

    @property
    def empty(self) -> bool:
        """Whether there is nothing of the experiment."""
        return not self._jobs and not any(self._pods.values())

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
        view = jobs.view(job)
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
            extra = [name for name in dict.fromkeys(seen) if name not in known and self._is_there(name)]
            self._units = (*named, *(self._unit_of(name) for name in sorted(extra, key=self._age)))
            times = [*(view.created for view in self._views()), *(job.created for job in self._jobs.values())]
            self._created = min(times, default=None)
        return self._units

    def _is_there(self, unit: str) -> bool:
        return bool(self._pods.get(unit)) or unit in self._jobs or unit in self._gone

    def _age(self, unit: str) -> tuple[float, str]:
        found = [view.created for view in self._pods.get(unit, {}).values()]
        return min(found, default=0.0), unit

    def _unit_of(self, name: str) -> Unit:
        """A unit of which only its objects tell."""
        views = [*self._pods.get(name, {}).values(), *([self._gone[name]] if name in self._gone else [])]
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
        watched = {name for unit in units for name, condition in unit.starts_after.items() if condition == "ready"}
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

    def _compute(self, unit: Unit, watched: set[str], now: float) -> _Unit | None:
        """The processes of a unit that there is or was; None for one that has not been created."""
        known = self._computed.get(unit.name)
        if known is not None and (known.until is None or now < known.until):
            return known
        if not self._is_there(unit.name):
            return None
        pods = sorted(self._pods.get(unit.name, {}).values(), key=lambda view: (view.created, view.name))
        computed = _Unit(unit, pods, self._jobs.get(unit.name), self._gone.get(unit.name), watched, now)
        computed.remember_ready(self._was_ready)
        self._computed[unit.name] = computed
        return computed

    def _wait_in_order(self, missing: list[Unit], tracks: dict[str, Track], now: float) -> list[float]:
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
        held = max([latest, *(_held_since(condition, tracks[name], now) for name, condition in after.items())])
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
        return first is not None and first.deleting is not None and all(view.deleting for view in views)

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
            )
            known = self._statuses[name] = (track, status)
        return known[1]


class _Unit:
    """One computation: the ``tracks`` of a unit's processes, which hold ``until`` a time, or for ever."""

    def __init__(
        self,
        unit: Unit,
        pods: list[PodView],
        job: JobView | None,
        gone: PodView | None,
        watched: set[str],
        now: float,
    ) -> None:
        self._unit = unit
        self._job = job
        self._watched = watched
        self._now = now
        self._pods = pods
        self.pod = _current(pods)
        self.until: float | None = None
        if self.pod is not None:
            found = self._of_pod(self.pod)
        else:
            found = self._without_pod(gone)
        self.tracks: dict[str, Track] = {name: found.get(name, Track()) for name in unit.processes}

    def remember_ready(self, was_ready: dict[tuple[str, str], float]) -> None:
        """Note who is ready now, and who was when somebody looked earlier."""
        if self.pod is None:
            return
        for name, track in self.tracks.items():
            key = (self.pod.uid, name)
            if track.was_ready:
                since = was_ready.setdefault(key, track.ready_since or self._now)
            elif key in was_ready:
                since = was_ready[key]
                track = self._on_time(track)
            else:
                continue
            self.tracks[name] = replace(track, was_ready=True, ready_since=track.ready_since or since)

    def _on_time(self, track: Track) -> Track:
        return replace(track, never_ready=False, reason="") if track.never_ready else track

    # --- with a Pod ---

    def _of_pod(self, pod: PodView) -> dict[str, Track]:
        tracks = {name: self._readiness(name, track, pod) for name, track in pod.containers.items()}
        tracks = {name: self._dying(track, pod) if track.dying else track for name, track in tracks.items()}
        if pod.deleting is not None:
            tracks = {name: self._deleting(track, pod) for name, track in tracks.items()}
        if self._job is not None:
            tracks = self._in_job(tracks, pod, self._job)
        return tracks

    def _readiness(self, name: str, track: Track, pod: PodView) -> Track:
        by_log = name in self._unit.logs and (name in self._watched or name in pod.noted)
        tested = by_log or name in pod.probed
        running = track.state is State.RUNNING
        if not tested:
            since = track.started
            track = replace(track, ready=running, was_ready=since is not None, ready_since=since)
        elif by_log:
            noted = name in pod.noted
            track = replace(track, ready=running and noted, was_ready=noted, ready_since=pod.noted_at)
        else:
            track = replace(track, was_ready=track.ready)
        if tested and running and not track.was_ready:
            return self._late(name, track)
        if running and pod.silent:
            return replace(track, reason=f"node {pod.node} does not answer")
        return track

    def _late(self, name: str, track: Track) -> Track:
        """A process that is not ready yet, or has run out of time for it."""
        timeout = self._unit.ready.get(name)
        if timeout is None or track.started is None:
            return track
        if self._now < track.started + timeout:
            self._holds_until(track.started + timeout)
            return track
        return replace(track, never_ready=True, reason=f"not ready within {timeout:g} s")

    def _dying(self, track: Track, pod: PodView) -> Track:
        """A process of a Pod that failed: it has its grace period, and then there is an exit code to tell."""
        due = (pod.written or 0.0) + pod.grace + OVERDUE
        if self._now >= due:
            return track
        self._holds_until(due)
        return replace(track, state=State.RUNNING, ended=None)

    def _deleting(self, track: Track, pod: PodView) -> Track:
        """A process of a Pod that is being deleted. An end that was asked for so is none of its own."""
        if track.state in ENDED and (track.ended or 0.0) < (pod.asked or 0.0):
            return track
        due = (pod.deleting or 0.0) + OVERDUE
        if self._now < due:
            self._holds_until(due)
            if track.state in ENDED:
                track = replace(track, state=State.RUNNING, exit_code=None, ended=None)
            return replace(track, ready=False, reason=DELETING)
        if track.state in ENDED:
            return track
        lost = f"{GONE}: node {pod.node} is gone" if pod.node else POD_DELETED
        return replace(track, state=State.UNKNOWN, ready=False, reason=lost)

    # --- with a Job ---

    def _in_job(self, tracks: dict[str, Track], pod: PodView, job: JobView) -> dict[str, Track]:
        earlier = len(self._pods) - 1
        tracks = {name: replace(track, restarts=track.restarts + earlier) for name, track in tracks.items()}
        if job.end is State.FAILED:
            due = max(pod.deleting or 0.0, (job.ended or 0.0) + pod.grace) + OVERDUE
            return {name: self._job_failed(track, job, due=due) for name, track in tracks.items()}
        failures = earlier + 1
        if job.end is None and pod.phase == "Failed" and failures <= job.limit and not job.deleting:
            return {name: self._tries_again(track, failures) for name, track in tracks.items()}
        return tracks

    def _job_failed(self, track: Track, job: JobView, *, due: float = 0.0) -> Track:
        """A process of a Job that failed; until ``due`` it has the time to end, which there is then more to tell of."""
        if track.state is State.SUCCEEDED:
            return track
        if track.state is State.RUNNING and self._now < due:
            self._holds_until(due)
            return replace(track, ready=False, reason=job.reason)
        if track.state is not State.FAILED:
            exit_code = track.exit_code if track.state is State.PENDING else None
            ended = job.ended or track.ended
            return replace(track, state=State.FAILED, ready=False, exit_code=exit_code, reason=job.reason, ended=ended)
        if job.reason.startswith(jobs.TRIED_OUT):
            last = f" (at last: {track.reason})" if track.reason else ""
            return replace(track, reason=job.reason + last) if job.limit else track
        killed = track.reason.startswith("killed by") or not track.reason
        return replace(track, reason=job.reason) if killed else track

    def _tries_again(self, track: Track, failures: int) -> Track:
        of = "its Pod failed" if track.exit_code in (None, 0) else f"exit code {track.exit_code}"
        reason = f"restarts in {jobs.back_off(failures)} s ({of})"
        return replace(track, state=State.PENDING, ready=False, reason=reason)

    # --- without a Pod ---

    def _without_pod(self, gone: PodView | None) -> dict[str, Track]:
        before = _before_deletion(gone)
        if self._job is not None:
            return self._of_job(self._job, gone, before)
        return {name: self._gone(before.get(name), gone) for name in self._unit.processes}

    def _gone(self, track: Track | None, gone: PodView | None) -> Track:
        """A process whose Pod is no longer there: how it ended, where that was seen before."""
        if track is not None and track.state in ENDED:
            return track
        ended = gone.deleting if gone is not None else None
        return replace(track or Track(), state=State.UNKNOWN, ready=False, reason=POD_DELETED, ended=ended)

    def _of_job(self, job: JobView, gone: PodView | None, before: Mapping[str, Track]) -> dict[str, Track]:
        known = {name: before.get(name, Track()) for name in self._unit.processes}
        if job.end is State.FAILED:
            last = gone.containers if gone is not None else {}
            return {name: self._job_failed(last.get(name, track), job) for name, track in known.items()}
        if job.end is State.SUCCEEDED:
            return {
                name: replace(track, state=State.SUCCEEDED, ready=False, exit_code=0, reason="", ended=job.ended)
                for name, track in known.items()
            }
        return dict.fromkeys(self._unit.processes, Track(reason=self._held_up(job, gone)))

    def _held_up(self, job: JobView, gone: PodView | None) -> str:
        since = max(job.created, (gone.deleting or 0.0) if gone is not None else 0.0)
        if job.suspended:
            return "its Job is suspended"
        if self._now < since + HELD_UP:
            self._holds_until(since + HELD_UP)
            return ""
        return f"its Job has made no Pod: 'kubectl describe job {job.name}' tells why (a quota?)"

    def _holds_until(self, time: float) -> None:
        self.until = time if self.until is None else min(self.until, time)


def _current(pods: list[PodView]) -> PodView | None:
    """The Pod that tells how its unit is: one that succeeded, else the latest, those being deleted last."""
    if not pods:
        return None
    done = [view for view in pods if view.phase == "Succeeded"]
    staying = [view for view in pods if view.deleting is None]
    return (done or staying or pods)[-1]


def _remembering(old: PodView, new: PodView) -> PodView:
    """What is told now, and what was told before of the same Pod and is no longer: a kubelet may wipe statuses."""
    found = dict(new.containers)
    for name, track in new.containers.items():
        earlier = old.containers.get(name)
        if earlier is not None and track.started is None and earlier.started is not None and track.state in ENDED:
            found[name] = replace(track, started=earlier.started, restarts=max(track.restarts, earlier.restarts))
    before = old.before
    if new.deleting is not None and old.deleting is None:
        before = old.containers
    return replace(new, containers=found, before=before)


def _before_deletion(gone: PodView | None) -> Mapping[str, Track]:
    """How the containers of a Pod that is no longer there were before somebody deleted it."""
    if gone is None:
        return {}
    if gone.before is not None:
        return gone.before
    return gone.containers if gone.deleting is None else {}


def _held_since(condition: str, track: Track, now: float) -> float:
    """Since when a condition that holds has held; ``now`` where nobody knows."""
    times = {"ready": track.ready_since, "started": track.started, "succeeded": track.ended}
    return times[condition] or now


def _in_order(units: list[Unit]) -> list[Unit]:
    """Units after those that they wait for."""
    if not any(unit.starts_after for unit in units):
        return units
    owners = {process: unit.name for unit in units for process in unit.processes}
    graph = {unit.name: {owners[name] for name in unit.starts_after if name in owners} for unit in units}
    by_name = {unit.name: unit for unit in units}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError:  # no launch makes one
        return units
