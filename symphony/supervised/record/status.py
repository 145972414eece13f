"""The status of an experiment, computed from its manifest, event log and running processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from symphony.errors import BackendError, NotFound
from symphony.plan.policies import Policies
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.state import RESTART_REQUESTED, RunState, Track, apply, fold
from symphony.plan.stop_order import stop_waves
from symphony.status import (
    ENDED,
    ExperimentStatus,
    ProcessStatus,
    ReasonCode,
    State,
    background_reason,
)
from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import (
    EventReader,
    apply_unrecorded_change,
    is_finished,
    previous_processes,
    process_names,
    recorded_leaders,
)
from symphony.supervised.record.note import read_note
from symphony.support.data_classes import replace

SUPERVISOR_KILLED = "the supervisor was killed"
REPLACED = "the supervisor was killed, and a new one has been started"
REBOOTED = "the machine was restarted, so no process of the experiment is running"

# How long a manifest that another machine has written may take to arrive.
MANIFEST_ARRIVAL_SECONDS = 10.0
_POLL_SECONDS = 0.1

# A function that starts a new supervisor for a run and returns whether there is one now; see
# `symphony.supervised.user_requests.replacement`. It raises BackendError if no supervisor can be
# started.
ReplaceSupervisor = Callable[[RunDirectory], bool]


class StatusReader:
    """A reader for the status of one experiment. Each call of `read` reads only the new events.

    If `read` finds that the supervisor was killed, it calls ``replace``, if given, to start a new
    one.
    """

    def __init__(self, run: RunDirectory, replace: ReplaceSupervisor | None = None) -> None:
        self._run = run
        self._replace = replace
        self._notes: list[str] = []
        self._load()

    def _load(self) -> None:
        """Read the manifest, and begin to read the events."""
        self._events = EventReader(self._run.events)
        # The stamp is older than the contents, so a change in the meantime is noticed.
        self._stamp = self._run.stamp()
        self._manifest = self._run.load_manifest()
        self._state = fold(process_names(self._manifest), [])

    def read(self) -> ExperimentStatus:
        """Return the current status.

        Raises BackendError if a file in the run directory is damaged, and NotFound if the
        experiment has been replaced by another run.
        """
        return self._compute_status(self._update())

    def read_state(self) -> RunState:
        """Return the current state according to the events, which takes less time than `read`.

        Raises the same errors as `read`.
        """
        self._update()
        return self._state

    def _update(self) -> bool:
        """Read the new events and changes. Return whether the supervisor was running before."""
        # Check whether the supervisor is running before reading the events. If no supervisor is
        # running at the time of the check, no more events will be written to the log.
        is_supervised = self.is_supervised()
        if not is_supervised and self._replace is not None and self._is_unfinished():
            self._replace_supervisor(self._replace)
            is_supervised = self.is_supervised()
        self._read_events()
        while self._run.stamp() not in (self._stamp, None):
            run_id = self._manifest["run_id"]
            self._load()
            if self._manifest["run_id"] != run_id:
                # The events may belong to the other run.
                raise NotFound(
                    f"experiment {self._run.name!r} was replaced by another launch in the meantime"
                )
            # The experiment was changed.
            is_supervised = self.is_supervised()
            self._read_events()
        self._wait_for_manifest()
        return is_supervised

    def _wait_for_manifest(self) -> None:
        """Read the manifest again if it is older than the events.

        The supervisor writes the manifest first, but a shared file system can show the previous
        manifest for some seconds. Raises BackendError if it still shows it then.
        """
        deadline = time.monotonic() + MANIFEST_ARRIVAL_SECONDS
        while self._state.revision > self._manifest.get("change", {}).get("revision", 0):
            if time.monotonic() > deadline:
                raise self._run.damaged(self._run.manifest, "it is older than the events")
            time.sleep(_POLL_SECONDS)
            self._load()
            self._read_events()

    def is_supervised(self) -> bool:
        """Return whether the supervisor of the run is running."""
        return self._run.is_locked()

    def _compute_status(self, is_supervised: bool) -> ExperimentStatus:
        """Return the status after the events that were read. ``is_supervised`` was determined
        before they were read.
        """
        has_launch = self._state.created is not None
        if not has_launch and not self._events.is_empty:
            raise self._run.damaged(self._run.events, "the event of the launch is missing")
        other_host = None if is_supervised else self._run.other_host()
        orphans = None
        has_finished = self._state.finished and all(
            track.state in ENDED for track in self._state.tracks.values()
        )
        if not is_supervised and not has_finished and other_host is None:
            orphans = self._find_orphans()
        notes = [*self._notes, read_note(self._run)]
        if is_supervised and not self._state.finished:
            notes.insert(0, self._run.suspension())
        if other_host is None:
            notes.append(self._disk_note())
        if orphans is not None and not has_launch:
            log = self._run.path / self._run.events.name
            notes.append(f"{log} contains no events")
        return compute_status(
            self._manifest,
            self._state,
            orphans=orphans,
            other_host=other_host,
            is_rebooted=orphans is not None and not self._run.is_of_this_boot(),
            notes=notes,
        )

    def _disk_note(self) -> str:
        """Return a note if output is lost because the disk is full, or ``""``."""
        if self._state.finished or not self._run.is_disk_full():
            return ""
        return f"no space is left on the disk of {self._run.path}, so output is lost"

    def _read_events(self) -> None:
        with self._run.report_damage(self._run.events):
            events = self._events.read_new()
        for event in events:
            apply(self._state, event)
        apply_unrecorded_change(self._state, self._manifest)

    def _is_unfinished(self) -> bool:
        """Return whether a new supervisor could continue the run."""
        is_here = self._run.other_host() is None and self._run.is_of_this_boot()
        return is_here and not is_finished(self._run.events)

    def _replace_supervisor(self, replace: ReplaceSupervisor) -> None:
        try:
            if replace(self._run):
                self._notes = [REPLACED]
        except (BackendError, OSError) as exc:
            self._notes = [f"no new supervisor could be started: {exc}"]
            # The next attempt would fail too.
            self._replace = None

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as of the latest call of `read`."""
        return self._manifest

    @property
    def state(self) -> RunState:
        """The state of the run as of the latest call of `read`."""
        return self._state

    @property
    def waits_for_start(self) -> bool:
        """True if, at the latest call of `read`, no process was running, and the supervisor waited
        for a request to start a stopped process.
        """
        return self._state.waits_for_start

    def _find_orphans(self) -> dict[str, ProcessId]:
        """Return the processes that are still running although the supervisor was killed."""
        leaders = recorded_leaders(self._state) if self._run.is_of_this_boot() else {}
        orphans = {name: leader for name, leader in leaders.items() if is_alive(leader)}
        # The supervisor can have been killed between the start of a process and the record of it.
        if any(track.state is State.PENDING for track in self._state.tracks.values()):
            from symphony.supervised.processes.membership import find_session_leaders

            return {**find_session_leaders(self._manifest["run_id"]), **orphans}
        return orphans

    def end_check(self, names: Collection[str]) -> Callable[[], bool]:
        """Return a predicate that is true when the named processes can write no more output.

        The caller can add names to ``names`` later.
        """

        def have_ended() -> bool:
            if not self._run.path.exists():
                return True
            try:
                status = self.read()
            except NotFound:
                return True
            selected = (process for process in status if process.name in names)
            return all(process.state in ENDED for process in selected)

        return have_ended


def compute_status(
    manifest: Mapping[str, Any],
    run: RunState,
    *,
    orphans: Mapping[str, ProcessId] | None = None,
    other_host: str | None = None,
    is_rebooted: bool = False,
    notes: Sequence[str] = (),
) -> ExperimentStatus:
    """Return the status of an experiment.

    If the supervisor was killed, ``orphans`` maps the name of each process that is still running to
    the process's identity. None means that the supervisor is running, that it finished normally, or
    that the experiment was launched on another host. Before reading the events, the caller must
    check whether the supervisor is running. If no supervisor is running at the time of the check,
    no more events will be written to the log.

    ``other_host`` is the host on which the experiment was launched if that is not this host. In
    this case, a process's state is unknown unless the events show that the process has exited or
    will never start. ``is_rebooted`` means that the machine was restarted since the launch.

    ``notes`` are further messages about the whole experiment, for example that the supervisor is
    suspended. Empty messages are ignored.
    """
    note = ""
    if other_host is not None:
        note = f"launched on {other_host}; its processes cannot be observed from this host"
    elif is_rebooted:
        note = REBOOTED
    elif orphans is not None:
        note = f"{SUPERVISOR_KILLED}; delete the experiment to stop the processes that still run"

    removed = [item for item in previous_processes(manifest) if item["name"] in run.leaving]
    processes = []
    described = [*manifest["processes"], *removed]
    begins = stop_begins(run, described)
    for item in described:
        name = item["name"]
        track = run.tracks.get(name) or run.leaving[name]
        if other_host is not None:
            track = _unobservable(track, note)
        elif orphans is not None:
            cause = REBOOTED if is_rebooted else SUPERVISOR_KILLED
            track = _unsupervised(track, orphans.get(name), cause)
        elif track.state is State.RUNNING:
            track = _with_kill_time(track, run, begins.get(name), item["grace"])
        if track.background and track.state in ENDED:
            is_running = track.in_background and not run.finished
            text = background_reason(track.background, is_running)
            track = replace(track, reason=f"{track.reason}; {text}" if track.reason else text)
        limit = RestartPolicy.of(item.get("restart")).max_restarts
        processes.append(_process_status(name, item["group"], track, limit))
    policies = Policies.from_dict(manifest.get("policies", {}))
    has_deadline = policies.deadline is not None and run.created is not None
    return ExperimentStatus(
        name=manifest["experiment"],
        backend=manifest["backend"],
        processes=tuple(processes),
        created=run.created,
        note="; ".join(text for text in (note, _policy_note(run), *notes) if text),
        ends_with=policies.ends_with,
        deadline=(run.created or 0.0) + (policies.deadline or 0.0) if has_deadline else None,
        parameters=manifest.get("parameters", {}),
    )


def _policy_note(run: RunState) -> str:
    """Return why the experiment was stopped, or how often it was restarted, or ``""``."""
    if run.ending is not None:
        return run.ending.reason
    if run.restarting:
        return f"the experiment restarts: {run.restart_cause}"
    if run.restarts:
        times = "once" if run.restarts == 1 else f"{run.restarts} times"
        return f"the experiment was restarted {times}, the last time because {run.restart_cause}"
    return ""


def _with_kill_time(track: Track, run: RunState, begin: float | None, grace: float) -> Track:
    """Return the track of a running process, which may be being stopped.

    ``begin`` is the time at which the stop of the whole experiment has reached the process, or
    None. ``grace`` is the grace period of the process in seconds.
    """
    times = [] if track.kill_at is None else [track.kill_at]
    if begin is not None:
        times.append(begin + grace)
    if not times and run.stopping_since is None:
        return track
    return replace(
        track,
        kill_at=min(times) if times else None,
        reason="being stopped",
        reason_code=ReasonCode.STOPPING,
    )


def stop_begins(run: RunState, processes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return when the stop of the whole experiment has reached processes that are running.

    The processes of later waves are omitted; see `symphony.plan.stop_order`. ``processes`` contains
    the descriptions of the processes, as in the manifest.
    """
    if run.stopping_since is None:
        return {}
    tracks = {**run.leaving, **run.tracks}
    starts_after = {item["name"]: item["starts_after"] for item in processes}
    begins: dict[str, float] = {}
    begin = run.stopping_since
    for wave in stop_waves(starts_after, starts_after):
        running = [name for name in wave if tracks[name].state is State.RUNNING]
        begins.update(dict.fromkeys(running, begin))
        if running:
            begin = math.inf
        else:
            begin = max([begin, *(tracks[name].ended or begin for name in wave)])
        if run.together_since is not None:
            # From this time on, no wave has waited for another one.
            begin = min(begin, run.together_since)
        if begin == math.inf:
            break
    return begins


def _unobservable(track: Track, reason: str) -> Track:
    """Return ``track`` with an unknown state, unless its recorded state is final.

    A process that is still running on another host cannot be observed.
    """
    if track.state in ENDED:
        return track
    return _unknown(track, reason, ReasonCode.LOST)


def _unsupervised(track: Track, orphan: ProcessId | None, cause: str) -> Track:
    """Return the track of a process whose supervisor is not running because of ``cause``.

    ``orphan`` is the process's identity if the process is still running, and None otherwise.
    """
    if track.state in ENDED:
        return track
    if orphan is not None:
        return replace(
            track,
            state=State.RUNNING,
            reason=SUPERVISOR_KILLED,
            reason_code=ReasonCode.SUPERVISOR_KILLED,
            pid=orphan.pid,
            kill_at=None,
            # Without a supervisor, the process's readiness is no longer probed.
            not_ready_in_time=not track.ready,
        )
    if track.state is State.PENDING:
        return _unknown(track, f"will not start: {cause}", ReasonCode.NEVER_STARTED)
    return _unknown(track, f"exit status unknown: {cause}", ReasonCode.LOST)


def _unknown(track: Track, reason: str, code: ReasonCode) -> Track:
    return replace(track, state=State.UNKNOWN, reason=reason, reason_code=code, ready=False)


# The reasons of a process that has exited and waits for its next start.
_RESTARTING = (ReasonCode.BACKING_OFF, ReasonCode.EXPERIMENT_RESTARTS)


def _process_status(
    name: str, group: str | None, track: Track, max_restarts: int | None
) -> ProcessStatus:
    is_running = track.state is State.RUNNING
    is_retried = track.state is State.PENDING and track.reason_code is ReasonCode.BACKING_OFF
    is_retried = is_retried and track.reason != RESTART_REQUESTED
    return ProcessStatus(
        name=name,
        group=group,
        state=track.state,
        ready=track.ready,
        exit_code=track.exit_code,
        reason=track.reason,
        reason_code=track.reason_code,
        restarts=track.restarts,
        started=track.started,
        ended=track.ended,
        stopped=track.stopped,
        pid=track.pid if is_running else None,
        not_ready_in_time=track.not_ready_in_time and is_running,
        test_result=track.test_result if is_running else "",
        next_start=track.next_start if track.reason_code in _RESTARTING else None,
        kill_at=track.kill_at if is_running else None,
        restart_number=track.retries if is_retried else None,
        max_restarts=max_restarts if is_retried else None,
    )
