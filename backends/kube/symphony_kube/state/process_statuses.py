"""Convert the states of processes to those that users see. Pure."""

from __future__ import annotations

from symphony.status import ProcessStatus, ReasonCode, State
from symphony_kube.state.pod_status import ContainerStatus


class ProcessStatuses:
    """The statuses of processes. Each is computed again only if it has changed."""

    def __init__(self) -> None:
        self._statuses: dict[str, tuple[ContainerStatus, ProcessStatus]] = {}

    def find(
        self, name: str, group: str | None, container: ContainerStatus, node: str
    ) -> ProcessStatus:
        """Return the status of a process whose container is on ``node``."""
        if container.started is None:
            node = ""
        cached = self._statuses.get(name)
        # The identity check avoids most comparisons in experiments with many processes.
        is_same = cached is not None and (cached[0] is container or cached[0] == container)
        if cached is not None and is_same and cached[1].node == node:
            return cached[1]
        not_ready_in_time = (
            container.state is State.RUNNING and container.never_ready and not container.ready
        )
        is_backing_off = container.state is State.PENDING and container.cause.code in (
            ReasonCode.BACKING_OFF,
            ReasonCode.EXPERIMENT_RESTARTS,
        )
        status = ProcessStatus(
            name=name,
            group=group,
            state=container.state,
            ready=container.ready,
            exit_code=container.exit_code,
            reason=container.cause.text,
            reason_code=container.cause.code,
            restarts=container.restarts,
            started=container.started,
            ended=container.ended,
            node=node,
            not_ready_in_time=not_ready_in_time,
            next_start=container.next_start if is_backing_off else None,
            stopped=container.stopped,
            kill_at=container.kill_at,
            restart_number=container.restart_number if is_backing_off else None,
            max_restarts=container.max_restarts if is_backing_off else None,
        )
        self._statuses[name] = (container, status)
        return status
