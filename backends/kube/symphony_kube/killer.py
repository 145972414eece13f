"""Kill the processes of stopped units whose grace period is over.

Kubernetes cannot shorten the grace period of a Pod that is being stopped, so a shell in each
container sends KILL to all processes of the Pod, which share a process namespace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.errors import BackendError, NotFound
from symphony_kube.access import exec as exec_access
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path
from symphony_kube.lifecycle.create import KILL_GRACE_SECONDS, delete_uid, in_parallel
from symphony_kube.state.pod_status import PodStatus
from symphony_kube.state.unit_status import UnitStatus

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

KILL_SCRIPT = "kill -KILL -1"
# Before the node has received the request to stop a Pod, it would restart a process that exits. If
# the Pod does not show that its node is stopping it, its processes are killed after this time.
NODE_SECONDS = 2.0
RETRY_SECONDS = 1.0
# A process that is still running after this time cannot be killed.
GIVE_UP_SECONDS = 20.0
# A part of the answer of a node to a command in a container that has exited.
_NO_CONTAINER = "container not found"
_EXEC_SECONDS = 5.0
_PAUSE_SECONDS = 0.25


@dataclass(slots=True, kw_only=True)
class _Kill:
    """The attempts to kill the processes of one Pod. Times are those of the monotonic clock.

    ``has_succeeded`` is true if KILL was sent, and ``has_exited`` if a container was not found.
    ``problem`` is why the latest attempt has failed, or ``""``. ``is_final`` is true if no other
    attempt can succeed.
    """

    name: str
    begun: float
    next_try: float
    in_progress: bool = False
    has_succeeded: bool = False
    has_exited: bool = False
    problem: str = ""
    is_final: bool = False


class Killer:
    """Kills the processes of Pods until the Pods show that they have exited."""

    def __init__(self, experiment: KubeExperiment) -> None:
        self._experiment = experiment
        self._kills: dict[str, _Kill] = {}

    def kill_due(self, units: Mapping[str, UnitStatus]) -> float | None:
        """Begin to kill the processes of stopped units, as soon as their nodes permit it.

        Return the number of seconds after which to call this method again, or None. Raises
        `BackendError` if a process cannot be killed.
        """
        server_time = self._experiment.api.now()
        pauses = []
        due = []
        for name, unit in units.items():
            pod = _pod_to_kill(unit)
            if pod is None:
                continue
            seconds = seconds_to_kill(unit, pod, server_time)
            if seconds > 0:
                pauses.append(seconds)
                continue
            kill = self._kill_of(name, pod)
            if _is_due(kill, pod):
                due.append((kill, pod))
            pauses.append(_PAUSE_SECONDS)
        if due:
            for kill, _ in due:
                kill.in_progress = True
            threading.Thread(target=self._run, args=(due,), daemon=True, name="kill").start()
        return min(pauses, default=None)

    def _kill_of(self, name: str, pod: PodStatus) -> _Kill:
        now = time.monotonic()
        return self._kills.setdefault(pod.uid, _Kill(name=name, begun=now, next_try=now))

    def _run(self, due: Sequence[tuple[_Kill, PodStatus]]) -> None:
        in_parallel(lambda item: self._kill(*item), due, threads=self._experiment.api.connections)

    def _kill(self, kill: _Kill, pod: PodStatus) -> None:
        """Kill the processes of a Pod, and record the result."""
        problem, is_final, has_exited = "", False, False
        for ref in pod.refs:
            if ref.state != "running":
                continue
            command = ["sh", "-c", KILL_SCRIPT]
            try:
                result = exec_access.run_in_container(
                    self._experiment, ref, command, timeout=_EXEC_SECONDS
                )
            except NotFound:
                problem, is_final = "its image contains no shell (sh)", True
            except BackendError as exc:
                if _NO_CONTAINER in str(exc):
                    # The node has not reported yet that the container has exited.
                    has_exited = True
                    continue
                problem = str(exc)
                is_final = isinstance(exc, ApiError) and exc.status == 403
            else:
                if result.exit_code:
                    problem = result.stderr.strip() or f"exit code {result.exit_code} of kill"
        kill.problem, kill.is_final = problem, is_final
        kill.has_exited = has_exited and not problem
        kill.has_succeeded = kill.has_succeeded or not problem
        kill.next_try = time.monotonic() + RETRY_SECONDS
        kill.in_progress = False


def kill_deleted(experiment: KubeExperiment, pods: Iterable[PodStatus]) -> None:
    """Kill the processes of Pods that are being deleted, once. The deletion reports other problems.

    A node that is stopping a Pod ignores a shorter grace period, so it is only set for a Pod whose
    image contains no shell.
    """

    def kill(pod: PodStatus) -> None:
        for ref in pod.refs:
            if ref.state != "running":
                continue
            try:
                command = ["sh", "-c", KILL_SCRIPT]
                exec_access.run_in_container(experiment, ref, command, timeout=_EXEC_SECONDS)
            except NotFound:
                path = f"{collection_path('Pod', experiment.namespace)}/{pod.name}"
                delete_uid(experiment.api, path, pod.uid, grace_seconds=KILL_GRACE_SECONDS)
            except BackendError:
                # The container has exited, or its node does not answer.
                continue

    in_parallel(kill, pods, threads=experiment.api.connections)


def _pod_to_kill(unit: UnitStatus) -> PodStatus | None:
    """Return the Pod of a unit whose processes are to be killed at some time, or None."""
    if unit.has_ended or not unit.control.stop or not unit.control.kill or not unit.pods:
        return None
    pod = unit.pods[-1]
    return pod if any(ref.state == "running" for ref in pod.refs) else None


def seconds_to_kill(unit: UnitStatus, pod: PodStatus, now: float) -> float:
    """Return the time in seconds until the processes of a stopped unit are killed. Pure.

    ``now`` is the time of the server, in seconds since the epoch.
    """
    moment = unit.control.kill
    if not (pod.is_being_stopped or pod.phase == "Failed" or pod.deadline is not None):
        moment = max(moment, unit.control.stop + NODE_SECONDS)
    return moment - now


def _is_due(kill: _Kill, pod: PodStatus) -> bool:
    """Return whether to try again. Raises `BackendError` if the processes cannot be killed."""
    if kill.in_progress:
        return False
    if kill.has_succeeded and pod.phase == "Failed":
        # Kubernetes 1.20 does not report the exit before the grace period is over.
        return False
    is_late = time.monotonic() > kill.begun + GIVE_UP_SECONDS
    if kill.is_final or (is_late and not kill.has_exited):
        problem = kill.problem or (
            "it is still running, because its processes belong to another user or do not share the "
            "process namespace of the Pod"
        )
        raise BackendError(
            f"{kill.name!r} is being stopped, but cannot be killed before its own grace period is "
            f"over: {problem}; 'symphony delete --now' kills it, and removes its logs from the "
            "cluster"
        )
    return time.monotonic() >= kill.next_try
