"""Compute the states of a unit's processes from its latest attempt and the requests for it. Pure.

What the objects of the attempt show is computed by `ObservedAttempt`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from symphony.plan.disruption import (
    Disruption,
    lost_text,
    started_again_text,
)
from symphony.plan.restart_policy import RestartPolicy
from symphony.status import ENDED, ReasonCode, State
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import Control
from symphony_kube.state.observed_attempt import (
    NO_RESTART,
    POD_REMOVED,
    STOPPING,
    Containers,
    ObservedAttempt,
)
from symphony_kube.state.pod_status import ContainerStatus, PodStatus
from symphony_kube.state.predictions import find_next_start
from symphony_kube.state.reasons import CREATING, NO_REASON, SCHEDULING, Reason, exit_unknown

# How long the creation of the next attempt can take.
REPLACE_SECONDS = 60.0

# The value of a member of an enumeration takes a while to look up.
_DISRUPTED = ReasonCode.DISRUPTED.value

NOT_REPLACED = exit_unknown("its new Pod does not exist; start it again")
STOPPED = Reason("stopped", ReasonCode.STOPPED)
START_REQUESTED = Reason(
    "waiting to be started on request; if the command was interrupted, repeat it",
    ReasonCode.WAITING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A restart that the restart policy of a unit requires, and that the supervisor performs.

    ``cause`` is the exit that is the reason, and ``time`` the time of the restart in seconds since
    the epoch.
    """

    cause: str
    time: float
    in_row: int


def policy_of(unit: Unit) -> RestartPolicy:
    """Return the restart policy of a unit, whether Kubernetes or the supervisor applies it."""
    if unit.supervised_restart:
        return RestartPolicy.of(unit.supervised_restart)
    return RestartPolicy(policy=unit.restart)


class UnitStatus:
    """The states of a unit's processes in its latest attempt.

    ``containers`` maps process names to states. The states are valid until one of the unit's
    objects changes. If ``valid_until`` is not None, they are valid at most until this time, in
    seconds since the epoch. ``executions`` contains the states of the attempt alone, whatever
    follows from them. ``control`` contains the requests for the attempt. ``has_ended`` is true if
    no process of the attempt is running or can start. ``retry`` is the restart that the supervisor
    has to request, or None. ``disruption`` is what has ended the attempt, if the supervisor has to
    start the unit again because of it, or None; see `symphony.plan.disruption`. ``restarts`` is the
    number of restarts of the next attempt. ``pods`` and ``job`` are the objects of the attempt, of
    which ``pods[-1]`` is the newest. There are none if the Pod of the attempt was deleted.

    If ``supervising`` is true, a supervisor creates the next attempt if its creation has begun, so
    the processes are pending for as long as this takes.
    """

    def __init__(self, observed: ObservedAttempt, *, supervising: bool = False) -> None:
        self._observed = observed
        self._supervising = supervising
        self._unit, self._pod, self._now = observed.unit, observed.pod, observed.now
        self.pods, self.job = observed.pods, observed.job
        self.containers: Containers = observed.containers()
        self.attempt, self.control = observed.latest_attempt()
        has_started, restarts = False, 0
        for container in self.containers.values():
            has_started = has_started or container.started is not None
            restarts = max(restarts, container.restarts)
        self.executions: Containers = self.containers
        self.has_ended = False
        self.retry: Retry | None = None
        self.disruption: Disruption | None = None
        self._apply_control()
        self.valid_until = observed.valid_until
        self.restarts = self.attempt.restarts + restarts
        if self.disruption is None and self.control.code != _DISRUPTED:
            self.restarts += has_started

    def remember_ready(self, ready_times: dict[tuple[str, str], float]) -> None:
        """Record which processes became ready, and restore the readiness that earlier calls
        recorded.

        ``ready_times`` maps each pair of a Pod's UID and a process name to the time at which the
        process became ready. This method updates the mapping.
        """
        if self._pod is None:
            return
        for name, container in self.containers.items():
            key = (self._pod.uid, name)
            if container.was_ready:
                since = ready_times.setdefault(key, container.ready_since or self._now)
            elif key in ready_times:
                since = ready_times[key]
                if container.never_ready:
                    # The process became ready in time and has become unready since then.
                    container = replace(container, never_ready=False, cause=NO_REASON)
            else:
                continue
            ready_since = container.ready_since or since
            if not container.was_ready or container.ready_since != ready_since:
                container = replace(container, was_ready=True, ready_since=ready_since)
            self.containers[name] = container

    @property
    def exists(self) -> bool:
        """True if the attempt has a Pod or a Job, in which requests can be recorded."""
        return bool(self.pods) or self.job is not None

    @property
    def waits_for_start(self) -> bool:
        """True if the next attempt is to be created, and this one has ended."""
        return bool(self.control.start) and self.has_ended and not self.control.replaced

    def is_requested_by(self, command: str, number: int) -> bool:
        """Return whether a command on attempt ``number`` of the unit was recorded, or is no longer
        necessary.
        """
        if self.attempt.number != number or self.control.replaced or not self.exists:
            return True
        if command == "start":
            return bool(self.control.start)
        if command in ("change", "restart"):
            # Some units are stopped later than others.
            return bool(self.control.start or self.control.stop)
        return bool(self.control.stop) or self.has_ended

    # --- requests ---

    def _apply_control(self) -> None:
        """Apply the requests for the attempt to the states of the processes."""
        control, attempt = self.control, self.attempt
        if control.stop:
            for name, container in self.containers.items():
                self.containers[name] = self._stopped(container)
        self.executions = dict(self.containers)
        self.has_ended = all(item.state in ENDED for item in self.containers.values())
        if not control.stop and not control.start:
            self.disruption = self._find_disruption()
            self.retry = self._find_retry() if self.disruption is None else None
        if attempt.restarts:
            for name, container in self.containers.items():
                restarts = container.restarts + attempt.restarts
                self.containers[name] = replace(container, restarts=restarts)
        self._wait_for_next_attempt(control)
        self._number_restarts()
        if attempt.lost:
            self._explain_new_start(attempt.lost)

    def _wait_for_next_attempt(self, control: Control) -> None:
        """Set the state of processes that have ended and will be started again."""
        if control.replaced:
            self._wait_for_replacement()
        elif control.start:
            self._set_pending(_reason_of(control), control.start, ended_only=True)
        elif self.retry is not None:
            cause = Reason(self.retry.cause, ReasonCode.BACKING_OFF)
            self._set_pending(cause, self.retry.time, ended_only=True)
        elif self.disruption is not None:
            self._wait_after_disruption(self.disruption)

    def _number_restarts(self) -> None:
        """Number the restart that the restart policy of the unit has caused."""
        is_policy = self.retry is not None or self.control.in_row > 0
        if not is_policy or not self._unit.supervised_restart:
            return
        limit = RestartPolicy.of(self._unit.supervised_restart).max_restarts
        for name, container in self.containers.items():
            if container.cause.code is ReasonCode.BACKING_OFF:
                self.containers[name] = replace(
                    container, restart_number=self.attempt.retries + 1, max_restarts=limit
                )

    def _stopped(self, container: ContainerStatus) -> ContainerStatus:
        """Return the state of a process that is stopped or being stopped."""
        control = self.control
        has_node = self._pod is not None and bool(self._pod.node)
        was_found_ended = bool(control.ended) and container.state is State.RUNNING
        is_pending = container.state is State.PENDING
        if is_pending and self._observed.can_create_pods:
            return replace(container, cause=STOPPING, next_start=None)
        if was_found_ended or (is_pending and not has_node):
            return replace(
                container,
                state=State.FAILED,
                ready=False,
                exit_code=None,
                cause=_stop_reason(control),
                stopped=not _unit_has_failed(control),
                ended=control.ended or control.stop,
                next_start=None,
            )
        if container.state in ENDED:
            # Kubernetes reports times in seconds.
            if container.ended is not None and container.ended < int(control.stop):
                return container
            is_stopped = not _unit_has_failed(control)
            return replace(container, cause=_stop_reason(control), stopped=is_stopped)
        if is_pending:
            return replace(container, cause=STOPPING, next_start=None)
        kill_at = control.kill
        if not kill_at and self._pod is not None:
            kill_at = control.stop + self._pod.grace_seconds
        return replace(container, ready=False, cause=STOPPING, kill_at=kill_at)

    def _set_pending(self, cause: Reason, start: float, *, ended_only: bool = False) -> None:
        """Set the state of processes that are about to be started again at the time ``start``."""
        for name, container in self.containers.items():
            if ended_only and container.state not in ENDED:
                continue
            self.containers[name] = ContainerStatus(
                cause=cause,
                exit_code=container.exit_code,
                restarts=container.restarts,
                ended=container.ended,
                next_start=start,
                unhealthy_end=container.unhealthy_end,
            )

    def _wait_for_replacement(self) -> None:
        expected = self.control.replaced + REPLACE_SECONDS
        if self._now < expected or self._supervising:
            if not self._supervising:
                self._observed.expires_at(expected)
            self._set_pending(_reason_of(self.control), self.control.start)
            return
        for name, container in self.containers.items():
            self.containers[name] = replace(
                container, state=State.UNKNOWN, ready=False, cause=NOT_REPLACED, stopped=False
            )

    def _find_retry(self) -> Retry | None:
        """Return the restart after the first exit to which the unit's restart policy applies."""
        if not self.exists or not self._unit.supervised_restart:
            return None
        exits = [
            (item.ended, name, item)
            for name, item in self.containers.items()
            if item.state in ENDED and item.ended is not None and item.started is not None
        ]
        for ended, _, container in sorted(exits, key=lambda found: found[:2]):
            event = find_next_start(policy_of(self._unit), container, self.attempt, ended)
            if event is not None:
                start = ended + event["restarts_in"]
                return Retry(cause=event["cause"], time=start, in_row=event["in_row"])
        return None

    # --- disruptions ---

    def _find_disruption(self) -> Disruption | None:
        """Return what has ended the attempt, if the unit has to be started again because of it."""
        pod = self._pod or self._observed.deleted_pod
        if not self._unit.replaced_if_lost or self._observed.known_job is not None or pod is None:
            return None
        if not self.has_ended or not self._was_disrupted(pod):
            return None
        disruption = pod.disruption or POD_REMOVED
        event = find_next_start(
            policy_of(self._unit),
            next(iter(self.containers.values())),
            self.attempt,
            self._now,
            disruption=disruption,
            is_stopped=bool(pod.control.stop) and not pod.control.start,
        )
        return None if event is None else disruption

    def _was_disrupted(self, pod: PodStatus) -> bool:
        """Return whether a process of the unit has not ended by itself."""
        containers = self.containers.values()
        if self._pod is None:
            return any(
                item.state is State.UNKNOWN or item.cause is NO_RESTART for item in containers
            )
        if pod.disruption is None:
            return False
        since = pod.disrupted_since or pod.delete_requested or math.inf
        return any(
            item.cause.code in (ReasonCode.EVICTED, ReasonCode.LOST)
            or (item.ended is not None and item.ended >= since)
            for item in containers
        )

    def _wait_after_disruption(self, disruption: Disruption) -> None:
        cause = Reason(lost_text(disruption), ReasonCode.DISRUPTED)
        for name, container in self.containers.items():
            self.containers[name] = ContainerStatus(cause=cause, restarts=container.restarts)

    def _explain_new_start(self, lost: str) -> None:
        """Say why the processes are being started again, or were started again, on this node."""
        node = "" if self._pod is None else self._pod.node
        for name, container in self.containers.items():
            text = ""
            if container.state is State.RUNNING and container.cause == NO_REASON:
                text = started_again_text(lost, node)
            elif container.cause in (NO_REASON, CREATING, SCHEDULING):
                text = lost if container.state is State.PENDING else ""
            if text:
                self.containers[name] = replace(container, cause=Reason(text, ReasonCode.DISRUPTED))


def _unit_has_failed(control: Control) -> bool:
    """Return whether a rank is stopped because another rank of its unit has failed."""
    return control.code == ReasonCode.UNIT_FAILED.value


def _stop_reason(control: Control) -> Reason:
    """Return the reason of a process that was stopped."""
    if _unit_has_failed(control):
        return Reason(control.reason, ReasonCode.UNIT_FAILED)
    return STOPPED


def _reason_of(control: Control) -> Reason:
    """Return why a unit is started again."""
    if not control.reason:
        return START_REQUESTED
    try:
        return Reason(control.reason, ReasonCode(control.code) if control.code else None)
    except ValueError:
        return NO_REASON
