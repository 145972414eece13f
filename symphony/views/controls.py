"""The controls that the views offer, and the questions that they ask first."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symphony.cluster import Cluster
from symphony.cluster.debug.restarting import restart_with_ordinary_commands
from symphony.cluster.matching import select_processes
from symphony.status import ProcessStatus, State
from symphony.support.names import join_names

_MAX_NAMES = 8


class Action(str, enum.Enum):
    """The effect of a control."""

    STOP = "stop"
    START = "start"
    RESTART = "restart"
    SIGNAL = "signal"
    SCALE = "scale"
    # Stop the whole experiment, and remove it. Its record remains.
    DELETE = "delete"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAction:
    """What a user does to an experiment, or to some of its processes.

    ``processes`` contains names or patterns as in `Cluster.stop_processes`. None stands for all
    processes. ``signal`` is the name of the signal for `Action.SIGNAL`, and ``replicas`` is the
    argument of `Cluster.scale` for `Action.SCALE`.
    """

    action: Action
    experiment: str
    processes: tuple[str, ...] | None = None
    signal: str = ""
    replicas: Mapping[str, int | str] | None = None


def question(control: UserAction) -> str:
    """Return the question to ask the user before a control that ends processes.

    It is empty if the control ends no process.
    """
    target = _target(control)
    if control.action is Action.DELETE:
        return (
            f"Delete {control.experiment}? Its processes are stopped. The record of the run and "
            "its logs are kept."
        )
    if control.action is Action.STOP:
        return f"Stop {target}?"
    if control.action is Action.RESTART:
        return f"Restart {target}?"
    if control.action is Action.SIGNAL:
        return f"Send {control.signal} to {target}?"
    if control.action is Action.SCALE and _may_remove(control.replicas or {}):
        return f"Change {_counts(control)} of {control.experiment}? Processes can be removed."
    return ""


def perform(cluster: Cluster, control: UserAction) -> str:
    """Carry out a control, and return what was done in one line.

    The function returns when the control is done. Raises the errors of the cluster's methods.
    """
    experiment = control.experiment
    selected = None if control.processes is None else list(control.processes)
    if control.action is Action.DELETE:
        cluster.delete(experiment)
        return f"deleted {experiment}"
    if control.action is Action.SCALE:
        changes = cluster.scale(experiment, control.replicas or {})
        return f"{experiment}: {'; '.join(changes.lines()) or 'nothing to change'}"
    if control.action is Action.SIGNAL:
        signaled = cluster.signal_processes(experiment, selected, control.signal)
        return f"sent {control.signal} to {_description(experiment, signaled)}"
    if control.action is Action.STOP:
        stopped = cluster.stop_processes(experiment, selected)
        return f"stopped {_description(experiment, stopped)}"
    if control.action is Action.START:
        status = cluster.describe_experiment(experiment)
        running = {process.name for process in status if process.state is State.RUNNING}
        result = cluster.start_processes(experiment, selected)
        concerned = [process for process in result if process.name not in running]
        return _started("started", experiment, concerned)
    return _restart(cluster, experiment, selected)


def _restart(cluster: Cluster, experiment: str, selected: list[str] | None) -> str:
    status = cluster.describe_experiment(experiment)
    finished = cluster.finished_one_shots(status) if selected is None else []
    names = [process.name for process in select_processes(status, selected)]
    names = [name for name in names if name not in finished]
    restarted = restart_with_ordinary_commands(cluster, experiment, names)
    return _started("restarted", experiment, restarted)


def _started(verb: str, experiment: str, processes: Sequence[ProcessStatus]) -> str:
    """Return which processes a request has started, and why it has not started the others."""
    started = [process for process in processes if process.has_started]
    if not processes:
        return f"{experiment}: nothing to start"
    texts = [f"{verb} {_description(experiment, started)}"] if started else []
    texts += [
        f"{process.path} is {process.displayed_state}: {process.reason}"
        for process in processes
        if not process.has_started
    ]
    return "; ".join(texts)


def _target(control: UserAction) -> str:
    if control.processes is None:
        return f"all processes of {control.experiment}"
    return f"{join_names(control.processes, limit=_MAX_NAMES)} of {control.experiment}"


def _description(experiment: str, processes: Sequence[ProcessStatus]) -> str:
    """Return the names of processes and of their experiment, such as ``learner of rl``."""
    names = join_names((process.path for process in processes), limit=_MAX_NAMES)
    return f"{names} of {experiment}"


def _may_remove(replicas: Mapping[str, int | str]) -> bool:
    """Return whether a number of replicas can become smaller."""
    return any(not str(count).startswith("+") for count in replicas.values())


def _counts(control: UserAction) -> str:
    replicas = control.replicas or {}
    return ", ".join(f"{name}={count}" for name, count in replicas.items())
