"""Stop, start, restart and signal processes, as a client.

A client records each request in the Pod or Job that it concerns, and carries out itself what
`symphony.plan.decide` decides: it stops the units in their order, kills those whose time is over,
and creates the next attempt of a unit when the previous one has ended and the start conditions are
met. If the client is killed, the same command continues. A running supervisor continues, too.
"""

from __future__ import annotations

import functools
import math
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symphony.cluster.matching import select_processes
from symphony.errors import BackendError, NotFound, SpecError
from symphony.plan import start_order
from symphony.plan.decisions.request_steps import TOLERANCE_SECONDS
from symphony.plan.one_shots import finished_one_shots, in_whole_groups
from symphony.plan.requests import Refused, is_unit_startable, refuse_idle
from symphony.plan.state import Request
from symphony.status import ENDED, ProcessStatus, ReasonCode, State
from symphony.support.names import join_names
from symphony.support.signal_effects import HARMLESS_SIGNALS, SIGNALS_FOR_ALL
from symphony_kube.access import exec as exec_access
from symphony_kube.killer import Killer
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.lifecycle.replacer import Replacer
from symphony_kube.lifecycle.requested_steps import RequestedSteps, Steps
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.render.container_scripts import UNHANDLED_CODE, SignalMode, signal_command
from symphony_kube.render.roster import (
    Roster,
    Unit,
    ranks_of_job_sets,
    units_of_ranks,
)
from symphony_kube.state.control_state import Control
from symphony_kube.state.observe import Observation
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import process_state
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope

# A process with one of these reasons does not start soon. A command does not wait until it starts.
_OBSTACLES = frozenset(
    {
        ReasonCode.UNSCHEDULABLE,
        ReasonCode.IMAGE_UNAVAILABLE,
        ReasonCode.MOUNT_FAILED,
        ReasonCode.NOT_PERMITTED,
        ReasonCode.CANNOT_START,
        ReasonCode.BACKING_OFF,
    }
)
# How long a process must have such a reason before a command gives up the start of others that wait
# for this process. Some obstacles are gone in a moment, such as a node that is full until a stopped
# Pod has left it.
OBSTACLE_SECONDS = 30.0


def stop(
    api: Api,
    scope: Scope,
    processes: Sequence[str] | None,
    *,
    grace: float | None = None,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Stop processes, and wait until they have exited; see `Cluster.stop_processes`.

    ``grace`` is the grace period in seconds, or None for the period of each Pod, and ``timeout`` is
    also in seconds.
    """
    target = _find_target(api, scope, processes, "stopped")
    _check_waiting(target)
    existing = {
        name: unit for name, unit in target.existing.items() if not _is_stopped_for_good(unit)
    }
    _check_grace(existing, grace)
    operation = Operation(api, scope, target, "stop", timeout, grace=grace)
    operation.stop_in_order(existing)
    operation.run()
    return operation.statuses()


def start(
    api: Api,
    scope: Scope,
    processes: Sequence[str] | None,
    *,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Start processes that are not running; see `Cluster.start_processes`."""
    target = _find_target(api, scope, processes, "started")
    _check_not_finished(target)
    ranks = {name: target.existing[name] for name in target.in_job_sets & target.existing.keys()}
    # A Pod of a rank that is stopped can exist until the controller has deleted its Job.
    _refuse_to_start({name for name, rank in ranks.items() if rank.has_ended or rank.control.stop})
    others = {name: unit for name, unit in target.existing.items() if name not in ranks}
    idle = {name: unit for name, unit in others.items() if _is_startable(unit)}
    attempts.check_manifests(idle)
    awaited = _find_gone(api, scope, target, is_named=processes is not None or not idle)
    operation = Operation(api, scope, target, "start", timeout)
    operation.start(idle)
    operation.await_start(target.existing)
    operation.await_supervisor(awaited)
    operation.run()
    return operation.statuses()


def restart(
    api: Api,
    scope: Scope,
    processes: Sequence[str] | None,
    *,
    grace: float | None = None,
    timeout: float | None = None,
) -> list[ProcessStatus]:
    """Stop processes, and start them again; see `Cluster.restart_processes`."""
    target = _find_target(api, scope, processes, "restarted")
    _check_not_finished(target)
    _refuse_to_start(target.in_job_sets)
    attempts.check_manifests(target.existing)
    _check_grace(target.existing, grace)
    operation = Operation(api, scope, target, "restart", timeout, grace=grace)
    operation.restart(target.existing)
    operation.run()
    return operation.statuses()


def send_signal(
    api: Api, scope: Scope, processes: Sequence[str] | None, number: int, *, force: bool = False
) -> list[ProcessStatus]:
    """Send a signal to running processes; see `Cluster.signal_processes`."""
    state, _ = experiments.observe_once(api, scope)
    status = experiments.current_status(api, scope, state)
    selected = select_processes(status, processes)
    try:
        refuse_idle({process.path: process.state for process in selected})
    except Refused as exc:
        raise BackendError(f"experiment {scope.experiment!r}: {exc}") from exc
    refs = {ref.process: ref for ref in state.objects.container_refs if ref.running}
    names = [process.name for process in selected]

    def run_in_all(mode: SignalMode) -> None:
        in_parallel(
            lambda name: _run_signal_script(api, scope, name, refs.get(name), number, mode),
            names,
            threads=api.connections,
        )

    mode = _signal_mode(number, force=force)
    if mode is SignalMode.REFUSE and len(names) > 1:
        run_in_all(SignalMode.CHECK)
    run_in_all(mode)
    after = experiments.experiment_status(api, scope)
    return [process for process in after if process.name in names]


def _signal_mode(number: int, *, force: bool) -> SignalMode:
    if number in SIGNALS_FOR_ALL:
        return SignalMode.EVERY
    return SignalMode.ALL if force or number in HARMLESS_SIGNALS else SignalMode.REFUSE


def _run_signal_script(
    api: Api,
    scope: Scope,
    process: str,
    ref: ContainerRef | None,
    number: int,
    mode: SignalMode,
) -> None:
    """Run the script that sends a signal in a process's container. Raises `BackendError`."""
    if ref is None:
        path, state = process_state(api, scope, process)
        raise NotFound(f"process {path!r} is not running ({state}), so no signal can be sent to it")
    try:
        result = exec_access.run_in_container(api, scope, ref, signal_command(number, mode))
    except NotFound as exc:
        raise BackendError(
            f"no signal can be sent to {process!r}, because its image contains no shell (sh)"
        ) from exc
    if result.exit_code == UNHANDLED_CODE:
        raise BackendError(
            f"no signal was sent: process {process!r} does not handle "
            f"{signal.Signals(number).name}, which would end it; to send it nevertheless, use "
            "--force"
        )
    if result.exit_code:
        details = result.stderr.strip() or f"exit code {result.exit_code}"
        raise BackendError(f"no signal could be sent to {process!r}: {details}")


# --- requests ---


def _with_stop(control: Control, now: float, kill_at: float) -> Control:
    """Return requests to stop a unit and not to start it again.

    It is killed at the time ``kill_at``. If this is infinity, its own grace period applies.
    """
    requested = attempts.stop_requested(control, now)
    kill = _earlier_kill(control.kill, kill_at)
    return replace(requested, kill=kill, command="", others="")


def _without_start(control: Control, now: float, *, has_ended: bool) -> Control:
    """Return requests for a unit that is to be stopped, without its start.

    A unit that runs and is not being stopped continues until its turn comes. Otherwise the stop is
    recorded, too, so that the restart policy does not start the unit.
    """
    if control.stop or has_ended:
        return _with_stop(control, now, math.inf)
    return replace(control, start=0.0, reason="", code="", in_row=0, command="", others="")


def _earlier_kill(recorded: float, kill_at: float) -> float:
    """Return the earlier one of two times, of which the first can be 0.0 and the second infinity.

    Both mean that there is no such time.
    """
    earlier = min(recorded or math.inf, kill_at)
    return 0.0 if earlier == math.inf else earlier


def _with_start(control: Control, now: float) -> Control:
    return replace(control, start=now, reason="", code="", in_row=0, command="", others="")


def _with_restart(control: Control, now: float, kill_at: float) -> Control:
    return _with_start(_with_stop(control, now, kill_at), now)


def _with_later_stop(control: Control, now: float, kill_at: float) -> Control:
    """Return the requests for a unit whose start was requested before its stop.

    A user who has stopped the unit in the meantime has cancelled its start.
    """
    if not control.start:
        return control
    return replace(control, stop=control.stop or now, kill=_earlier_kill(control.kill, kill_at))


def _check_grace(units: Mapping[str, UnitStatus], seconds: float | None) -> None:
    """Raise `SpecError` if the grace period of a Pod is shorter than ``seconds``."""
    for name, unit in units.items():
        limit = unit.pods[-1].grace_seconds if unit.pods and not unit.has_ended else math.inf
        if seconds is not None and seconds > limit:
            raise SpecError(
                f"the grace period of {name!r} is {limit:g} s, and Kubernetes cannot extend it: "
                "set a shorter one, or launch with a longer termination_grace_period"
            )


# --- the selection ---


@dataclass(kw_only=True)
class _Target:
    """The processes that a command selects, and their units.

    ``all_units`` contains the units of the whole experiment. ``is_ending`` is true if the
    experiment was stopped for good, or has come to its end.
    """

    all_units: Roster
    observation: Observation
    names: list[str]
    units: list[Unit] = field(default_factory=list)
    is_ending: bool = False

    @property
    def existing(self) -> dict[str, UnitStatus]:
        """The states of the selected units that exist."""
        statuses = self.observation.unit_statuses
        return {unit.name: statuses[unit.name] for unit in self.units if unit.name in statuses}

    @property
    def in_job_sets(self) -> set[str]:
        """The names of the selected units that are ranks in JobSets."""
        return {unit.name for unit in self.units if unit.job_set}

    @property
    def missing(self) -> list[Unit]:
        """The selected units that have not been created yet."""
        return [unit for unit in self.units if unit.name in self.observation.missing_units]


def _find_target(api: Api, scope: Scope, processes: Sequence[str] | None, action: str) -> _Target:
    """Return the selected processes. Raises `SpecError` if a part of a group is selected."""
    state, _ = experiments.observe_once(api, scope)
    experiments.current_status(api, scope, state)
    observation = state.observe(api.now())
    if observation.deleting:
        raise BackendError(f"experiment {scope.experiment!r} is being deleted")
    found = select_processes(observation.status, processes)
    if processes is None and action != "stopped":
        conditions = [unit.starts_after for unit in state.units]
        finished = finished_one_shots(observation.status, conditions)
        kept = in_whole_groups(finished, observation.status)
        found = [process for process in found if process.name not in kept]
    names = _with_other_ranks([process.name for process in found], state.units)
    target = _Target(
        all_units=state.units,
        observation=observation,
        names=names,
        is_ending=state.record.ending is not None,
    )
    selected = set(names)
    for unit in target.all_units:
        chosen = selected.intersection(unit.processes)
        if not chosen:
            continue
        if len(chosen) < len(unit.processes):
            raise SpecError(
                f"the processes of group {unit.name!r} share a Pod on Kubernetes, so they can only "
                f"be {action} together: name the group {unit.name!r}"
            )
        target.units.append(unit)
    return target


def _with_other_ranks(names: Sequence[str], roster: Roster) -> list[str]:
    """Return the names of processes, with the other ranks of their units."""
    selected = dict.fromkeys(names)
    for ranks in (*units_of_ranks(roster).values(), *ranks_of_job_sets(roster).values()):
        unit = [rank.name for rank in ranks]
        if not selected.keys().isdisjoint(unit):
            selected.update(dict.fromkeys(unit))
    return list(selected)


def _find_gone(api: Api, scope: Scope, target: _Target, *, is_named: bool) -> list[str]:
    """Return the selected units without Pods that the supervisor starts again.

    If ``is_named`` is true, raise `BackendError` for units whose Pods were deleted and that no
    supervisor starts again. Their manifests were deleted with them.
    """
    awaited, lost = [], []
    for unit in target.missing:
        states = [target.observation.containers[process] for process in unit.processes]
        is_lost = any(state.state is State.UNKNOWN for state in states)
        is_created_later = unit.starts_after or unit.rank_of or unit.job_set
        if any(state.cause.code is ReasonCode.DISRUPTED for state in states):
            awaited.append(unit.name)
        elif is_lost or not is_created_later:
            lost.append(unit.name)
    if awaited and not _has_supervisor(api, scope):
        lost += awaited
        awaited = []
    if lost and is_named:
        raise BackendError(
            f"{join_names(lost, limit=3)} cannot be started, because the Pod was deleted; "
            "'symphony up' with the file of the experiment creates it again"
        )
    return awaited


def _has_supervisor(api: Api, scope: Scope) -> bool:
    return detached.directory_of(api, scope).exists or in_cluster.exists(api, scope)


def _refuse_to_start(names: Collection[str]) -> None:
    """Raise `BackendError` if there are ranks in JobSets among the units to start."""
    if names:
        raise BackendError(
            f"{join_names(sorted(names), limit=3)} cannot be started by symphony, because only the "
            "controller of a JobSet starts its ranks: launch the experiment again, or name the "
            "other processes"
        )


def _check_waiting(target: _Target) -> None:
    """Raise `BackendError` if a unit that has not been created would start although it is to be
    stopped.
    """
    if target.is_ending:
        # No process starts any more.
        return
    selected = set(target.names)
    states = {process.name: process.state for process in target.observation.status}
    for unit in target.missing:
        if all(states[name] in ENDED for name in unit.processes):
            # Its Pod was deleted.
            continue
        if not selected.intersection(unit.starts_after):
            raise BackendError(
                f"{unit.name!r} has not started yet and cannot be stopped alone: it waits for "
                f"{join_names(unit.starts_after)}; stop these, too"
            )


def _check_not_finished(target: _Target) -> None:
    status = target.observation.status
    can_continue = any(item.reason_code is ReasonCode.STOPPED for item in status)
    if target.is_ending or (status.ended and not can_continue):
        raise BackendError(
            f"experiment {status.name!r} has finished; launch it again to run its processes"
        )


def _is_stopping_in_job_set(unit: UnitStatus) -> bool:
    is_rank = unit.job is not None and unit.job.kind == "JobSet"
    return is_rank and bool(unit.control.stop) and not unit.has_ended


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


def _has_ended(unit: UnitStatus | None, number: int) -> bool:
    """Return whether the attempt ``number`` of a unit has ended, or has been replaced."""
    return unit is None or unit.has_ended or unit.attempt.number > number


def _is_new(unit: UnitStatus, number: int) -> bool:
    """Return whether a unit has been started again after its attempt ``number``.

    The requests for a JobSet remain when its controller restarts it.
    """
    return unit.attempt.number > number and not unit.control.stop


def _is_stopped_for_good(unit: UnitStatus) -> bool:
    """Return whether a unit has ended and will not be started again."""
    return unit.has_ended and not unit.control.start and unit.retry is None


def _is_startable(unit: UnitStatus) -> bool:
    control = unit.control
    return is_unit_startable(
        unit.containers.values(),
        is_stopping=bool(control.stop),
        is_starting=bool(control.replaced or control.start),
    )


def _awaits_log(unit: Unit, status: UnitStatus, observation: Observation, now: float) -> bool:
    """Return whether a log can still show that a process of a unit is ready.

    After the command, no one might read the log.
    """
    if not status.pods:
        return False
    pod = status.pods[-1]
    for process in unit.logs:
        container = observation.containers[process]
        if container.state is not State.RUNNING or container.started is None:
            continue
        is_ready = process in pod.ready_by_log
        if not is_ready and now < container.started + unit.ready.get(process, 0.0):
            return True
    return False


# --- the operation ---


def request_replacements(
    api: Api,
    scope: Scope,
    observation: Observation,
    roster: Roster,
    manifests: Mapping[str, Mapping[str, Any]],
    revision: int,
    *,
    stops: bool,
) -> Operation:
    """Request that units are stopped and created again from other manifests.

    ``roster`` is the new roster. ``manifests`` maps the names of existing units to their new Pods
    or Jobs, and ``revision`` is the number of the change of the experiment. If ``stops`` is false,
    the units are not stopped before `Operation.stop_wave`; no other unit starts after them before
    they have been started again. The result performs the requests.
    """
    units = [unit for unit in roster if unit.name in manifests]
    names = [process for unit in units for process in unit.processes]
    target = _Target(all_units=roster, observation=observation, names=names, units=units)
    operation = Operation(api, scope, target, "change", None, manifests)

    def change(control: Control) -> Control:
        if control.revision > revision:
            raise BackendError(f"another command has changed experiment {scope.experiment!r}")
        requested = _with_start(control, api.now())
        if stops:
            requested = _with_restart(control, api.now(), math.inf)
        return replace(requested, revision=revision)

    operation.request(target.existing, change)
    return operation


class Operation:
    """The performance of the requests of one command.

    ``grace`` is the grace period in seconds, or None for that of each Pod.
    """

    def __init__(
        self,
        api: Api,
        scope: Scope,
        target: _Target,
        verb: str,
        timeout: float | None,
        manifests: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        *,
        grace: float | None = None,
    ) -> None:
        self._api = api
        self._scope = scope
        self._target = target
        self._verb = verb
        self._timeout = timeout
        self._manifests = manifests
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._observation = target.observation
        self._roster = {unit.name: unit for unit in target.units}
        # The number of the attempt that each request concerned.
        self._requested: dict[str, int] = {}
        self._replacer = Replacer(api, scope)
        self._steps = RequestedSteps(target.all_units)
        self._grace = grace
        # The numbers of the attempts that this command stops when their turn comes.
        self._stopped: dict[str, int] = {}
        # The times at which those are killed whose stop this command has recorded.
        self._kill_times: dict[tuple[str, int], float] = {}
        self._killer = Killer(api, scope)
        # The first observation can be older than the request.
        self._observed: set[str] = set()
        # The units that the supervisor creates.
        self._of_supervisor: set[str] = set()
        # The processes with obstacles to their start, and the times on the monotonic clock at which
        # they were seen first.
        self._obstacles: dict[str, float] = {}

    def stop_in_order(self, units: Mapping[str, UnitStatus]) -> None:
        """Also stop units, each when its turn comes. Those whose turn has come are stopped now.

        Their starts are cancelled first. If a restart was interrupted, the stop of a unit that it
        has not reached would otherwise complete it, and a supervisor would start the other units.
        """
        starting = {name: unit for name, unit in units.items() if unit.control.start}
        in_parallel(self._cancel_start, starting.values(), threads=self._api.connections)
        self._stopped.update((name, unit.attempt.number) for name, unit in units.items())
        self._stop_now(self._target.observation, self._find_steps(self._target.observation))

    def _cancel_start(self, unit: UnitStatus) -> None:
        change = partial(_without_start, now=self._api.now(), has_ended=unit.has_ended)
        attempts.request(self._api, self._scope, unit, change)

    def start(self, units: Mapping[str, UnitStatus]) -> None:
        """Request the start of units. If Kubernetes restarts one with a delay, it is stopped."""
        self._note_running(units)
        self.request(units, partial(_with_start, now=self._api.now()))

    def restart(self, units: Mapping[str, UnitStatus]) -> None:
        """Request the restart of units. Running units are stopped when their turn comes.

        The start of all is recorded first, so that none starts before those have been stopped that
        it starts after.
        """
        self._note_running(units)
        now = self._api.now()
        stops = self._find_steps(self._target.observation).stops
        later = {name for name in self._stopped if name not in stops}
        for name, kill_at in stops.items():
            if name in self._stopped:
                self._kill_times[name, self._stopped[name]] = kill_at

        def change(name: str, control: Control) -> Control:
            if name in later:
                return _with_start(control, now)
            return _with_restart(control, now, stops.get(name, math.inf))

        self.request_each(units, change)

    def _note_running(self, units: Mapping[str, UnitStatus]) -> None:
        running = {name: unit for name, unit in units.items() if not unit.has_ended}
        self._stopped.update((name, unit.attempt.number) for name, unit in running.items())

    def request(
        self, units: Mapping[str, UnitStatus], change: Callable[[Control], Control]
    ) -> None:
        """Record the same request for each unit; see `request_each`."""
        self.request_each(units, lambda _, control: change(control))

    def request_each(
        self, units: Mapping[str, UnitStatus], change: Callable[[str, Control], Control]
    ) -> None:
        """Record a request for each unit. ``change`` receives the name of the unit.

        The request is recorded again if another command has replaced the unit in the meantime. The
        first unit also records the others, so that the status shows if the client is killed before
        it has recorded all requests.
        """
        remaining = _without_other_ranks(units)
        others = {name: unit for name, unit in units.items() if name not in remaining}
        if len(remaining) > 1:
            self._request_first(remaining, change)
        while remaining:
            in_parallel(
                lambda item: self._request_unit(*item, partial(change, item[0])),
                list(remaining.items()),
                threads=self._api.connections,
            )
            missed = [name for name in remaining if name not in self._requested]
            if not missed:
                break
            target = _find_target(self._api, self._scope, missed, self._verb)
            remaining = {
                name: unit for name, unit in target.existing.items() if name in set(missed)
            }
        self._requested.update((name, unit.attempt.number) for name, unit in others.items())

    def _request_first(
        self, units: dict[str, UnitStatus], change: Callable[[str, Control], Control]
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

        self._request_unit(name, first, with_others)
        if name not in self._requested:
            # Another command has replaced the unit.
            units[name] = first

    def _request_unit(
        self, name: str, unit: UnitStatus, change: Callable[[Control], Control]
    ) -> None:
        if unit.control.replaced:
            # A client was killed before it had created the next attempt.
            attempts.replace_attempt(
                self._api, self._scope, unit, deadline=self._observation.status.deadline
            )
            # The replacement can have another manifest than the requested one.
            if self._verb in ("stop", "change"):
                return
            self._requested[name] = unit.attempt.number
            return
        manifest = self._manifests.get(name)
        if attempts.request(self._api, self._scope, unit, change, manifest) is not None:
            self._requested[name] = unit.attempt.number

    def await_start(self, units: Mapping[str, UnitStatus]) -> None:
        """Also wait for units that have been created and have not started yet."""
        for name, unit in units.items():
            is_starting = any(item.state is State.PENDING for item in unit.containers.values())
            if name not in self._requested and is_starting:
                self._requested[name] = unit.attempt.number - 1

    def await_created(self, units: Collection[str]) -> None:
        """Also wait for units that were created after the requests."""
        for unit in self._target.all_units:
            if unit.name in units:
                self._requested[unit.name] = 0
                self._roster[unit.name] = unit

    def request_wave(
        self, units: Collection[str], statuses: Mapping[str, UnitStatus]
    ) -> dict[str, int]:
        """Request that units are stopped that will be started again.

        ``statuses`` contains the present states of all units. Return the numbers of the attempts
        that are being stopped. Units that have ended or have been started again are omitted.
        """
        stopping = {}
        for name in units:
            unit = statuses.get(name)
            if unit is None or unit.has_ended or unit.attempt.number != self._requested.get(name):
                continue
            stopping[name] = unit
        in_parallel(
            lambda name: self._stop_later(stopping[name], math.inf),
            stopping,
            threads=self._api.connections,
        )
        return {name: unit.attempt.number for name, unit in stopping.items()}

    def _stop_later(self, unit: UnitStatus, kill_at: float) -> None:
        """Stop a unit that will be started again."""
        change = partial(_with_later_stop, now=self._api.now(), kill_at=kill_at)
        attempts.request(self._api, self._scope, unit, change)

    def await_wave(self, stopping: Mapping[str, int], seconds: float) -> None:
        """Perform the requests until the attempts that `request_wave` stops have ended.

        Return after ``seconds`` at the latest, because a node may not respond.
        """

        def have_ended(observation: Observation) -> bool:
            return all(
                _has_ended(observation.unit_statuses.get(name), number)
                for name, number in stopping.items()
            )

        if stopping:
            self._follow(have_ended, time.monotonic() + seconds)

    def await_supervisor(self, units: Collection[str]) -> None:
        """Also wait for units that the supervisor creates."""
        self.await_created(units)
        self._of_supervisor.update(units)

    def run(self) -> None:
        """Perform the requests, and return when they are done.

        Raises TimeoutError if this takes too long, and BackendError if processes are left that only
        this command would start, and that wait for a process with an obstacle to its start. The
        requests then remain.
        """
        has_requests = self._requested or self._stopped
        if has_requests and not self._follow(self._is_done, self._deadline):
            raise TimeoutError(
                f"experiment {self._scope.experiment!r}: the {self._verb} was not done "
                f"within {self._timeout:g} s; repeat the command to continue it"
            )
        self._check_all_started()

    def _check_all_started(self) -> None:
        """Raise BackendError if units wait for processes with obstacles, and no supervisor will
        start them.
        """
        observation = self._observation
        waiting, obstacles = [], dict[str, None]()
        for name, unit in self._existing(observation).items():
            if unit.waits_for_start and unit.attempt.number <= self._requested[name]:
                found = self._find_obstacles(name, observation)
                waiting += [name] if found else []
                obstacles.update(dict.fromkeys(found))
        if not waiting or self._is_supervised:
            return
        first = next(iter(obstacles))
        reason = observation.containers[first].reason
        raise BackendError(
            f"experiment {self._scope.experiment!r}: {join_names(waiting, limit=3)} could not be "
            f"started yet, because {first} does not start: {reason}; when it has started, repeat "
            "the command to continue it"
        )

    def _follow(self, is_done: Callable[[Observation], bool], deadline: float | None) -> bool:
        """Perform the requests until ``is_done`` returns true.

        Return False if the time ``deadline`` on the monotonic clock has passed before.
        """
        with ObservationStream(self._api, self._scope, reads_ready_logs=True) as stream:
            observation = stream.first()
            while True:
                self._observation = observation
                self._note_obstacles(observation)
                begun = self._begun_replacements(observation)
                now = self._api.now()
                steps = self._find_steps(observation)
                self._stop_now(observation, steps)
                self._replacer.replace(observation, steps.starts, now=now, begun=begun)
                self._stop_ranks(observation)
                if is_done(observation):
                    return True
                pause = self._kill_due(observation, steps)
                seconds = None if deadline is None else deadline - time.monotonic()
                if seconds is not None and seconds <= 0:
                    return False
                wake = None if steps.wake_at is None else max(0.0, steps.wake_at - now)
                next_give_up = self._next_lasting_obstacle()
                times = (pause, seconds, wake, next_give_up)
                pauses = [item for item in times if item is not None]
                observation = stream.next(min(pauses, default=None)) or observation

    def _note_obstacles(self, observation: Observation) -> None:
        """Note since when processes have had obstacles to their start."""
        now = time.monotonic()
        self._obstacles = {
            process: self._obstacles.get(process, now)
            for process, container in observation.containers.items()
            if container.cause.code in _OBSTACLES
        }

    def _next_lasting_obstacle(self) -> float | None:
        """Return the time in seconds until another obstacle has lasted for `OBSTACLE_SECONDS`."""
        now = time.monotonic()
        ends = [since + OBSTACLE_SECONDS for since in self._obstacles.values()]
        return min((end - now for end in ends if end > now), default=None)

    @functools.cached_property
    def _is_supervised(self) -> bool:
        """True if a supervisor starts the processes that this command does not start."""
        return _has_supervisor(self._api, self._scope)

    def _does_not_start(self, process: str) -> bool:
        """Return whether a process has an obstacle for which this command does not wait."""
        since = self._obstacles.get(process)
        if since is None:
            return False
        return time.monotonic() >= since + OBSTACLE_SECONDS or self._is_supervised

    def _find_steps(self, observation: Observation) -> Steps:
        """Return how the requests of this command and of others continue."""
        names = [
            process
            for name in self._still_stopped(observation)
            for process in self._roster[name].processes
        ]
        kind = "stop" if self._verb == "stop" else "restart"
        request = Request(kind, names, self._grace) if names else None
        return self._steps.find(observation, self._api.now(), request)

    def _still_stopped(self, observation: Observation) -> dict[str, UnitStatus]:
        """Return the units that this command stops, without those that have been started again.

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
            if self._verb == "stop" and not is_recorded:
                self._stopped[name] = unit.attempt.number
            if not _is_new(unit, self._stopped[name]):
                found[name] = unit
        return found

    def _stop_now(self, observation: Observation, steps: Steps) -> None:
        """Record the stop of the units whose turn has come, and of those that have ended."""
        wave: dict[str, UnitStatus] = {}
        kill_times: dict[str, float] = {}
        for name, unit in self._still_stopped(observation).items():
            kill_at = steps.stops.get(name)
            is_cancelled = self._verb == "stop" and unit.has_ended
            if is_cancelled and not _is_stopped_for_good(unit):
                kill_at = math.inf
            if kill_at is not None and self._is_to_record(name, unit, kill_at):
                wave[name], kill_times[name] = unit, kill_at
                self._kill_times[name, unit.attempt.number] = kill_at
        if not wave:
            return
        now = self._api.now()
        if self._verb != "stop":
            in_parallel(
                lambda name: self._stop_later(wave[name], kill_times[name]),
                wave,
                threads=self._api.connections,
            )
            return
        self.request_each(wave, lambda name, control: _with_stop(control, now, kill_times[name]))
        for name in wave:
            # Another command can have replaced or removed the unit in the meantime.
            del self._stopped[name]
            if name in self._requested:
                self._stopped[name] = self._requested[name]
                self._kill_times[name, self._requested[name]] = kill_times[name]

    def _is_to_record(self, name: str, unit: UnitStatus, kill_at: float) -> bool:
        """Return whether the stop of a unit is not recorded yet, or with a later time."""
        recorded = self._kill_times.get((name, unit.attempt.number))
        return recorded is None or kill_at < recorded - TOLERANCE_SECONDS

    def _stop_ranks(self, observation: Observation) -> None:
        """Stop the Pods of JobSets, which share the requests of one of their ranks."""
        units = self._existing(observation)
        in_parallel(
            partial(attempts.stop_pods_of_job, self._api, self._scope),
            [unit for unit in units.values() if _is_stopping_in_job_set(unit)],
            threads=self._api.connections,
        )

    def _begun_replacements(self, observation: Observation) -> list[str]:
        """Return the units in which the creation of the requested attempt has begun.

        Another client or supervisor that was about to create them can have been killed.
        """
        if self._verb == "stop":
            return []
        names = []
        for name, number in self._requested.items():
            unit = observation.unit_statuses.get(name)
            if unit is not None and unit.control.replaced and unit.attempt.number <= number:
                names.append(name)
        return names

    def statuses(self) -> list[ProcessStatus]:
        """Return the statuses of the selected processes."""
        selected = set(self._target.names)
        return [process for process in self._observation.status if process.name in selected]

    def _is_done(self, observation: Observation) -> bool:
        if self._verb == "stop":
            return all(self._has_stopped(name, observation) for name in self._stopped)
        for name, number in self._requested.items():
            unit = observation.unit_statuses.get(name)
            if unit is None and name in self._of_supervisor:
                if not self._cannot_be_created(name, observation):
                    return False
                continue
            if unit is None:
                raise BackendError(f"the Pod of {name!r} was deleted")
            if not self._is_unit_done(observation, name, unit, number):
                return False
            if _awaits_log(self._roster[name], unit, observation, self._api.now()):
                return False
        return True

    def _has_stopped(self, name: str, observation: Observation) -> bool:
        unit = observation.unit_statuses.get(name)
        if unit is None:
            raise BackendError(f"the Pod of {name!r} was deleted")
        number = self._stopped[name]
        if _is_new(unit, number):
            return True
        is_recorded = (name, number) in self._kill_times
        return unit.has_ended and (is_recorded or _is_stopped_for_good(unit))

    def _cannot_be_created(self, name: str, observation: Observation) -> bool:
        states = [observation.containers[process] for process in self._roster[name].processes]
        return any(item.state in ENDED or item.cause.code in _OBSTACLES for item in states)

    def _is_unit_done(
        self, observation: Observation, name: str, unit: UnitStatus, number: int
    ) -> bool:
        if unit.attempt.number <= number:
            control = unit.control
            if control.start or control.replaced:
                self._observed.add(name)
            elif name in self._observed:
                raise BackendError(f"another request stopped {name!r}")
            return unit.waits_for_start and self._waits_in_vain(name, observation)
        processes = [observation.containers[process] for process in unit.containers]
        return all(
            process.started is not None
            or process.state in ENDED
            or process.cause.code in _OBSTACLES
            for process in processes
        )

    def _waits_in_vain(self, name: str, observation: Observation) -> bool:
        """Return whether the start conditions of a unit cannot be met by what this command does."""
        conditions = self._roster[name].starts_after
        if start_order.verdict(conditions, observation.containers) is start_order.START:
            return False
        for process, condition in conditions.items():
            unit = self._started_units().get(process)
            container = observation.containers[process]
            verdict = start_order.verdict({process: condition}, observation.containers)
            is_left_alone = unit is None and self._verb != "change"
            if is_left_alone or verdict.word != "wait":
                continue
            if unit is None:
                # The process is created by the supervisor.
                if container.state not in ENDED and not self._does_not_start(process):
                    return False
                continue
            if not self._does_not_start(process) and not self._waits_in_vain(unit, observation):
                return False
        return True

    def _find_obstacles(self, name: str, observation: Observation) -> list[str]:
        """Return the processes with obstacles for which a unit waits, and which this command
        starts.
        """
        found = []
        for process, condition in self._roster[name].starts_after.items():
            verdict = start_order.verdict({process: condition}, observation.containers)
            unit = self._started_units().get(process)
            if unit is None or verdict.word != "wait":
                continue
            if self._does_not_start(process):
                found.append(process)
            else:
                found += self._find_obstacles(unit, observation)
        return found

    def _started_units(self) -> dict[str, str]:
        """Return the processes that this command starts, with their units."""
        return {
            process: name for name in self._requested for process in self._roster[name].processes
        }

    # --- exits ---

    def _existing(self, observation: Observation) -> dict[str, UnitStatus]:
        return {
            name: observation.unit_statuses[name]
            for name in self._requested
            if name in observation.unit_statuses
        }

    def _kill_due(self, observation: Observation, steps: Steps) -> float | None:
        """Kill the stopped processes whose time is over.

        Return the time in seconds until the next attempt to kill a process, or None.
        """
        units = self._existing(observation)
        return self._killer.kill_due({name: units[name] for name in steps.kills if name in units})
