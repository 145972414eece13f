"""Carry out the requests of one command until they are done."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.plan.state import Request
from symphony.status import ENDED, ProcessStatus, State
from symphony.support.names import join_names
from symphony_kube.killer import Killer
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.lifecycle.replacer import Replacer
from symphony_kube.lifecycle.requested_steps import RequestedSteps, Steps
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.state.control_state import Control
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.user_requests.control_changes import with_restart, with_start, with_stop
from symphony_kube.user_requests.obstacles import StartObstacles, has_obstacle
from symphony_kube.user_requests.record_requests import RequestRecorder
from symphony_kube.user_requests.targets import RequestTarget, has_supervisor
from symphony_kube.user_requests.unit_stops import UnitStops
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def request_replacements(
    experiment: KubeExperiment,
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
    the units are not stopped before `Operation.request_wave`; no other unit starts after them
    before they have been started again. The result performs the requests.
    """
    units = [unit for unit in roster if unit.name in manifests]
    names = [process for unit in units for process in unit.processes]
    target = RequestTarget(all_units=roster, observation=observation, names=names, units=units)
    operation = Operation(experiment, target, "change", None, manifests)

    def change(control: Control) -> Control:
        if control.revision > revision:
            raise BackendError(f"another command has changed experiment {experiment.name!r}")
        requested = with_start(control, experiment.api.now())
        if stops:
            requested = with_restart(control, experiment.api.now(), math.inf)
        return replace(requested, revision=revision)

    operation.request(target.existing, change)
    return operation


class Operation:
    """The performance of the requests of one command.

    ``grace`` is the grace period in seconds, or None for that of each Pod.
    """

    def __init__(
        self,
        experiment: KubeExperiment,
        target: RequestTarget,
        verb: str,
        timeout: float | None,
        manifests: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        *,
        grace: float | None = None,
    ) -> None:
        self._experiment = experiment
        self._target = target
        self._verb = verb
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._observation = target.observation
        self._roster = {unit.name: unit for unit in target.units}
        self._recorder = RequestRecorder(experiment, verb, manifests)
        # The number of the attempt that each request concerned.
        self._requested = self._recorder.requested
        self._replacer = Replacer(experiment)
        self._steps = RequestedSteps(target.all_units)
        self._grace = grace
        self._stops = UnitStops(is_final=verb == "stop")
        self._killer = Killer(experiment)
        # The first observation can be older than the request.
        self._observed: set[str] = set()
        # The units that the supervisor creates.
        self._of_supervisor: set[str] = set()
        self._obstacles = StartObstacles(
            self._roster,
            self._requested,
            lambda: self._is_supervised,
            awaits_others=verb == "change",
        )

    def stop_in_order(self, units: Mapping[str, UnitStatus]) -> None:
        """Also stop units, each when its turn comes. Those whose turn has come are stopped now.

        Their starts are cancelled first. If a restart was interrupted, the stop of a unit that it
        has not reached would otherwise complete it, and a supervisor would start the other units.
        """
        starting = {name: unit for name, unit in units.items() if unit.control.start}
        self._recorder.cancel_starts(list(starting.values()))
        self._stops.add(units)
        self._stop_now(self._target.observation, self._find_steps(self._target.observation))

    def start(self, units: Mapping[str, UnitStatus]) -> None:
        """Request the start of units. If Kubernetes restarts one with a delay, it is stopped."""
        self._stops.add(_running(units))
        self.request(units, partial(with_start, now=self._experiment.api.now()))

    def restart(self, units: Mapping[str, UnitStatus]) -> None:
        """Request the restart of units. Running units are stopped when their turn comes.

        The start of all is recorded first, so that none starts before those have been stopped that
        it starts after.
        """
        self._stops.add(_running(units))
        now = self._experiment.api.now()
        stops = self._find_steps(self._target.observation).stops
        later = self._stops.note_restarts(stops)

        def change(name: str, control: Control) -> Control:
            if name in later:
                return with_start(control, now)
            return with_restart(control, now, stops.get(name, math.inf))

        self._record(units, change)

    def request(
        self, units: Mapping[str, UnitStatus], change: Callable[[Control], Control]
    ) -> None:
        """Record the same request for each unit; see `RequestRecorder.record`."""
        self._record(units, lambda _, control: change(control))

    def _record(
        self, units: Mapping[str, UnitStatus], change: Callable[[str, Control], Control]
    ) -> None:
        self._recorder.record(units, change, self._observation.status.deadline)

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
        self._recorder.stop_before_start(stopping, dict.fromkeys(stopping, math.inf))
        return {name: unit.attempt.number for name, unit in stopping.items()}

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
        has_requests = self._requested or not self._stops.is_empty
        if has_requests and not self._follow(self._is_done, self._deadline):
            raise TimeoutError(
                f"experiment {self._experiment.name!r}: the {self._verb} was not done "
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
                found = self._obstacles.find(name, observation)
                waiting += [name] if found else []
                obstacles.update(dict.fromkeys(found))
        if not waiting or self._is_supervised:
            return
        first = next(iter(obstacles))
        reason = observation.containers[first].reason
        raise BackendError(
            f"experiment {self._experiment.name!r}: {join_names(waiting, limit=3)} could not be "
            f"started yet, because {first} does not start: {reason}; when it has started, repeat "
            "the command to continue it"
        )

    def _follow(self, is_done: Callable[[Observation], bool], deadline: float | None) -> bool:
        """Perform the requests until ``is_done`` returns true.

        Return False if the time ``deadline`` on the monotonic clock has passed before.
        """
        with ObservationStream(self._experiment, reads_ready_logs=True) as stream:
            observation = stream.first()
            while True:
                self._observation = observation
                self._obstacles.note(observation)
                begun = self._begun_replacements(observation)
                now = self._experiment.api.now()
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
                next_give_up = self._obstacles.next_lasting()
                times = (pause, seconds, wake, next_give_up)
                pauses = [item for item in times if item is not None]
                observation = stream.next(min(pauses, default=None)) or observation

    @functools.cached_property
    def _is_supervised(self) -> bool:
        """True if a supervisor starts the processes that this command does not start."""
        return has_supervisor(self._experiment)

    def _find_steps(self, observation: Observation) -> Steps:
        """Return how the requests of this command and of others continue."""
        names = [
            process
            for name in self._stops.find_remaining(observation)
            for process in self._roster[name].processes
        ]
        kind = "stop" if self._verb == "stop" else "restart"
        request = Request(kind, names, self._grace) if names else None
        return self._steps.find(observation, self._experiment.api.now(), request)

    def _stop_now(self, observation: Observation, steps: Steps) -> None:
        """Record the stop of the units whose turn has come, and of those that have ended."""
        wave, kill_times = self._stops.take_due(observation, steps.stops)
        if not wave:
            return
        if self._verb != "stop":
            self._recorder.stop_before_start(wave, kill_times)
            return
        now = self._experiment.api.now()
        self._record(wave, lambda name, control: with_stop(control, now, kill_times[name]))
        self._stops.confirm(wave, self._requested, kill_times)

    def _stop_ranks(self, observation: Observation) -> None:
        """Stop the Pods of JobSets, which share the requests of one of their ranks."""
        units = self._existing(observation)
        in_parallel(
            partial(attempts.stop_pods_of_job, self._experiment),
            [unit for unit in units.values() if _is_stopping_in_job_set(unit)],
            threads=self._experiment.api.connections,
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
            return self._stops.have_all_ended(observation)
        for name, number in self._requested.items():
            unit = observation.unit_statuses.get(name)
            if unit is None and name in self._of_supervisor:
                if not self._obstacles.prevent_creation(name, observation):
                    return False
                continue
            if unit is None:
                raise BackendError(f"the Pod of {name!r} was deleted")
            if not self._is_unit_done(observation, name, unit, number):
                return False
            if _awaits_log(self._roster[name], unit, observation, self._experiment.api.now()):
                return False
        return True

    def _is_unit_done(
        self, observation: Observation, name: str, unit: UnitStatus, number: int
    ) -> bool:
        if unit.attempt.number <= number:
            control = unit.control
            if control.start or control.replaced:
                self._observed.add(name)
            elif name in self._observed:
                raise BackendError(f"another request stopped {name!r}")
            return unit.waits_for_start and self._obstacles.waits_in_vain(name, observation)
        processes = [observation.containers[process] for process in unit.containers]
        return all(
            process.started is not None or process.state in ENDED or has_obstacle(process)
            for process in processes
        )

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


def _running(units: Mapping[str, UnitStatus]) -> dict[str, UnitStatus]:
    return {name: unit for name, unit in units.items() if not unit.has_ended}


def _is_stopping_in_job_set(unit: UnitStatus) -> bool:
    is_rank = unit.job is not None and unit.job.kind == "JobSet"
    return is_rank and bool(unit.control.stop) and not unit.has_ended


def _has_ended(unit: UnitStatus | None, number: int) -> bool:
    """Return whether the attempt ``number`` of a unit has ended, or has been replaced."""
    return unit is None or unit.has_ended or unit.attempt.number > number


def _awaits_log(unit: Unit, status: UnitStatus, observation: Observation, now: float) -> bool:
    """Return whether a log can still show that a process of a unit is ready.

    After the command, perhaps no program reads the log.
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
