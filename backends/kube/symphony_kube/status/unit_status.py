"""How the processes of one unit are, from its Pods and its Job. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symphony.status import ENDED, State
from symphony_kube.render.roster import Unit
from symphony_kube.status import job_status
from symphony_kube.status.job_status import JobView
from symphony_kube.status.pod_status import GONE, PodView, Track

# A Pod that is still there so long after it should be gone, in seconds, has lost its node.
OVERDUE = 30.0
# A Job that has made no Pod after so long, in seconds, is held up by something that only its events tell.
HELD_UP = 10.0

POD_DELETED = f"{GONE}: its Pod was deleted"
DELETING = "its Pod is being deleted"


class UnitSeen:
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
            self.tracks[name] = replace(
                track, was_ready=True, ready_since=track.ready_since or since
            )

    def _on_time(self, track: Track) -> Track:
        return replace(track, never_ready=False, reason="") if track.never_ready else track

    # --- with a Pod ---

    def _of_pod(self, pod: PodView) -> dict[str, Track]:
        tracks = {name: self._readiness(name, track, pod) for name, track in pod.containers.items()}
        tracks = {
            name: self._dying(track, pod) if track.dying else track
            for name, track in tracks.items()
        }
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
            track = replace(
                track, ready=running and noted, was_ready=noted, ready_since=pod.noted_at
            )
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
        tracks = {
            name: replace(track, restarts=track.restarts + earlier)
            for name, track in tracks.items()
        }
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
        if track.state not in ENDED and self._now < due:  # what is pending may yet begin to run
            self._holds_until(due)
            return replace(track, ready=False, reason=job.reason)
        if track.state is not State.FAILED:
            exit_code = track.exit_code if track.state is State.PENDING else None
            ended = job.ended or track.ended
            return replace(
                track,
                state=State.FAILED,
                ready=False,
                exit_code=exit_code,
                reason=job.reason,
                ended=ended,
            )
        if job.reason.startswith(job_status.TRIED_OUT):
            last = f" (at last: {track.reason})" if track.reason else ""
            return replace(track, reason=job.reason + last) if job.limit else track
        killed = track.reason.startswith("killed by") or not track.reason
        by_job = job.ended is not None and (track.ended is None or track.ended >= job.ended)
        return replace(track, reason=job.reason) if killed or by_job else track

    def _tries_again(self, track: Track, failures: int) -> Track:
        of = "its Pod failed" if track.exit_code in (None, 0) else f"exit code {track.exit_code}"
        reason = f"restarts in {job_status.back_off(failures)} s ({of})"
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
        return replace(
            track or Track(), state=State.UNKNOWN, ready=False, reason=POD_DELETED, ended=ended
        )

    def _of_job(
        self, job: JobView, gone: PodView | None, before: Mapping[str, Track]
    ) -> dict[str, Track]:
        known = {name: before.get(name, Track()) for name in self._unit.processes}
        if job.end is State.FAILED:
            last = gone.containers if gone is not None else {}
            return {
                name: self._job_failed(last.get(name, track), job) for name, track in known.items()
            }
        if job.end is State.SUCCEEDED:
            return {
                name: replace(
                    track,
                    state=State.SUCCEEDED,
                    ready=False,
                    exit_code=0,
                    reason="",
                    ended=job.ended,
                )
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


def _before_deletion(gone: PodView | None) -> Mapping[str, Track]:
    """How the containers of a Pod that is no longer there were before somebody deleted it."""
    if gone is None:
        return {}
    if gone.before is not None:
        return gone.before
    return gone.containers if gone.deleting is None else {}
