"""The states of processes that are stopped at the end of an experiment. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from symphony.status import ENDED, ExperimentStatus, ReasonCode, State
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.state.pod_status import ContainerStatus
from symphony_kube.state.reasons import Reason


def processes_to_stop(status: ExperimentStatus) -> list[str]:
    """Return the processes that an end of the experiment at this moment stops.

    A process that has exited keeps its result, although its Pod or Job has not finished yet.
    """
    return [
        process.name
        for process in status
        if process.state not in ENDED and process.reason_code is not ReasonCode.FINISHING
    ]


def find_never_started(status: ExperimentStatus) -> dict[str, str]:
    """Return the processes that can never start, each with the reason."""
    return {
        process.name: process.reason
        for process in status
        if process.reason_code is ReasonCode.NEVER_STARTED
    }


def apply_ending(
    ending: StoppedProcesses,
    containers: Mapping[str, ContainerStatus],
    on_nodes: Collection[str],
) -> dict[str, ContainerStatus]:
    """Return the states of processes, of which some are stopped or being stopped.

    ``on_nodes`` contains the processes whose Pods have been assigned to nodes. Until its node has
    stopped such a Pod, its processes can still start.
    """
    result = dict(containers)
    for name in _known(ending.processes, containers):
        result[name] = _stopped(ending, containers[name], can_start=name in on_nodes)
    for name in _known(ending.never_started, containers):
        if containers[name].state is State.PENDING:
            cause = Reason(ending.never_started[name], ReasonCode.NEVER_STARTED)
            result[name] = replace(containers[name], state=State.FAILED, cause=cause)
    return result


def _known(names: Iterable[str], containers: Mapping[str, ContainerStatus]) -> list[str]:
    return [name for name in names if name in containers]


def _stopped(
    ending: StoppedProcesses, container: ContainerStatus, *, can_start: bool
) -> ContainerStatus:
    cause = Reason(ending.reason, ReasonCode(ending.code))
    is_pending = container.state is State.PENDING and can_start
    if container.state is State.RUNNING and cause.code is ReasonCode.STOPPED:
        # The user stops the experiment. The process has been asked to exit, or will be.
        return container
    if container.state is State.RUNNING or is_pending:
        return replace(container, ready=False, cause=cause)
    state = State.FAILED
    if container.state is State.SUCCEEDED and not ending.failed:
        state = State.SUCCEEDED
    ended = container.ended if container.state in ENDED else None
    return replace(
        container,
        state=state,
        ready=False,
        cause=cause,
        stopped=not ending.failed,
        next_start=None,
        ended=ending.time if ended is None else ended,
    )
