"""The state of a Pod and of its containers, which `pod_parser` derives from the API object.

The classes are not frozen, although their objects are not modified, because creating the objects of
frozen classes would take a third of the time in which a Pod is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from symphony.plan.disruption import Disruption
from symphony.status import ReasonCode, State
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord
from symphony_kube.state.control_state import (
    FIRST_ATTEMPT,
    NO_CONTROL,
    Attempt,
    Control,
)
from symphony_kube.state.reasons import NO_REASON, Reason

DEFAULT_GRACE_SECONDS = 30.0
# A Pod in one of these phases never runs a container again.
FINISHED_PHASES = ("Succeeded", "Failed")


class UnhealthyEnd(NamedTuple):
    """The end of an execution that the kubelet has stopped because its liveness probe had failed.

    The kubelet does this after ``failed_tests`` failures in a row. ``started`` and ``ended`` are in
    seconds since the epoch.
    """

    failed_tests: int
    exit_code: int | None
    started: float | None
    ended: float


@dataclass(slots=True, kw_only=True)
class ContainerStatus:
    """The state of one process. This class implements `symphony.plan.start_order.Awaited`.

    Times are seconds since the epoch. ``ready_since`` is the time at which the process became
    ready, or None if the time is unknown. ``stopping`` is true if the process has been asked to
    exit but has not exited yet. ``stopped`` is true if a user or the supervisor stopped it.
    ``next_start`` is the earliest time of the next start of a process that will be restarted.
    ``kill_at`` is the time at which a process that is being stopped is killed. ``restart_number``
    and ``max_restarts`` are those of `symphony.status.ProcessStatus`. ``awaits_pod`` is true if the
    container has exited, but the result of the process depends on that of its Pod, which has not
    finished. Since Kubernetes 1.27, a Pod finishes more than a second after its last container.
    ``unhealthy_end`` is the end of the latest execution, or of the previous one if the process is
    running, if it was stopped because it was unhealthy, and otherwise None.
    """

    state: State = State.PENDING
    ready: bool = False
    was_ready: bool = False
    never_ready: bool = False
    exit_code: int | None = None
    cause: Reason = NO_REASON
    restarts: int = 0
    started: float | None = None
    ended: float | None = None
    ready_since: float | None = None
    stopping: bool = False
    stopped: bool = False
    next_start: float | None = None
    kill_at: float | None = None
    restart_number: int | None = None
    max_restarts: int | None = None
    awaits_pod: bool = False
    unhealthy_end: UnhealthyEnd | None = None

    @property
    def failed_tests(self) -> int:
        """After how many failed tests in a row the latest execution was stopped, or 0."""
        end = self.unhealthy_end
        return 0 if end is None or self.ended is None else end.failed_tests

    @property
    def reason(self) -> str:
        """The reason for the process's state, as text."""
        return self.cause.text

    @property
    def waits_for_restart(self) -> bool:
        """True if the process starts again by itself after a delay."""
        return self.state is State.PENDING and self.cause.code is ReasonCode.BACKING_OFF


# The state of a process that has not been created and does not wait for another process.
NOT_CREATED = ContainerStatus()


@dataclass(slots=True, kw_only=True)
class ContainerRef:
    """A process's container in one Pod, with the data that log and access commands need.

    ``state`` is the container state that Kubernetes reports (``running``, ``waiting`` or
    ``terminated``), or ``""`` if the kubelet has not reported a state. ``has_log`` is true once the
    container has started. ``finished`` is true if the container will never run again, although a
    Job can still create another Pod. ``created`` is the Pod's creation time in seconds since the
    epoch. ``attempt`` is the number of the attempt to which the Pod belongs.
    """

    process: str
    unit: str
    pod: str
    uid: str
    created: float = 0.0
    of_job: bool = False
    host: str = ""
    state: str = ""
    restarts: int = 0
    has_log: bool = False
    finished: bool = False
    deleting: bool = False
    attempt: int = 1
    tty: bool = False

    @property
    def running(self) -> bool:
        """True if the process is running."""
        return self.state == "running" and not self.finished


@dataclass(slots=True, kw_only=True)
class PodStatus:
    """The state of a Pod. Times are seconds since the epoch.

    ``delete_requested`` is the time at which the Pod's deletion was requested, and ``deadline`` is
    the time by which the Pod must have stopped. ``grace_seconds`` is the Pod's termination grace
    period. ``ready_by_log`` contains the names of the containers whose logs have matched their
    readiness expressions since the containers were started last. ``log_problems`` contains the
    names of containers whose logs take too long to search, each with a message. ``probed`` contains
    the names of the containers that have a
    readiness probe. ``before_deletion`` maps container names to the states that were observed
    before the deletion request, or is None if no such states were observed. ``node_silent`` is true
    if the node has stopped reporting. ``is_being_stopped`` is true if the node reports that it has
    begun to stop the Pod. ``disruption`` is what takes or took the Pod away, or None, and
    ``disrupted_since`` is the time of the condition that reports it, or None. ``scheduled`` is the
    time at which the Pod of a rank was assigned to a node, or None. ``is_stopped`` is true if the
    Pod's active deadline is the one with which Pods are stopped. ``time_limit`` is the time in
    seconds after its start at which Kubernetes stops the Pod because of the deadline of the
    experiment, or None. ``control`` contains the requests for the Pod. ``job`` is the name of the
    Job to which the Pod belongs, or ``""``. If it belongs to one, the state of the Job or of its
    JobSet contains the requests.
    """

    name: str
    uid: str
    unit: str
    node: str = ""
    job: str = ""
    created: float = 0.0
    modified: float | None = None
    deadline: float | None = None
    delete_requested: float | None = None
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    phase: str = ""
    node_silent: bool = False
    is_being_stopped: bool = False
    disruption: Disruption | None = None
    disrupted_since: float | None = None
    scheduled: float | None = None
    record: EncodedRecord = NO_RECORD
    attempt: Attempt = FIRST_ATTEMPT
    control: Control = NO_CONTROL
    has_manifest: bool = False
    is_stopped: bool = False
    time_limit: int | None = None
    ready_by_log: frozenset[str] = frozenset()
    ready_by_log_at: float | None = None
    log_problems: tuple[tuple[str, str], ...] = ()
    probed: frozenset[str] = frozenset()
    refs: tuple[ContainerRef, ...] = ()
    containers: Mapping[str, ContainerStatus] = field(default_factory=dict)
    before_deletion: Mapping[str, ContainerStatus] | None = None

    @property
    def has_finished(self) -> bool:
        """True if no container of the Pod will run again.

        Kubernetes 1.20 reports this of a Pod that has exceeded its active deadline before its
        containers have exited.
        """
        return self.phase in FINISHED_PHASES

    @property
    def has_failed(self) -> bool:
        """True if the Pod has failed, or if all of its containers have exited and it will fail."""
        if self.has_finished:
            return self.phase == "Failed"
        exits = self.containers.values()
        will_finish = all(item.awaits_pod for item in exits)
        return will_finish and any(item.state is State.FAILED for item in exits)
