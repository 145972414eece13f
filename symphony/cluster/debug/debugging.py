"""Restarting a process under a debugger, and putting it back."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.cluster.debug_programs import program, with_preamble
from symphony.cluster.described import python_command, without_debugger
from symphony.cluster.matching import cannot_change
from symphony.errors import BackendError, NotFound, SpecError, SymphonyError
from symphony.plan.changes import UNCHANGED
from symphony.status import ENDED, State
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster.cluster import Cluster, ExecResult
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.status import ProcessStatus

DEBUGGER_HOST = "127.0.0.1"
# The port of debugpy in a container whose process is not running, so that no free port can be
# determined. It is the port in the documentation of debugpy.
DEFAULT_PORT = 5678
# How long one command waits in the environment of the process for debugpy.
_LISTEN_SECONDS = 5
_MISSING = "No module named debugpy"
_LOG_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The place at which debugpy listens: its port, and the directories of the process.

    ``code`` is the directory of the process's snapshot of its code, or None if it has none.
    """

    port: int
    code: str | None
    directory: str


def change_only(
    cluster: Cluster, experiment: Experiment, processes: Collection[str], *, dry_run: bool = False
) -> Changes:
    """Change processes of a running experiment, but no other ones, and return the changes.

    Other ranks of the same unit and members of the same group can restart together with them.
    Raises `SpecError` if other processes would change too, for example because the contents of an
    env file are not those of the launch any more.
    """
    changes = cluster.diff(experiment, start=[])
    if changes.launch:
        raise BackendError(
            f"experiment {experiment.name!r} has finished, so its processes cannot be changed; "
            "launch it again"
        )
    if changes.relaunch:
        raise cannot_change(changes)
    companions = _companions(experiment, processes)
    others = [
        change
        for change in changes.processes
        if change.action != UNCHANGED and change.name not in companions
    ]
    if others or changes.policies:
        names = join_names([change.path for change in others]) or "the experiment itself"
        reason = next((change.text for change in others if change.text), "")
        raise SpecError(
            f"this would also change {names}{f' ({reason})' if reason else ''}, because "
            f"{experiment.name!r} is not described as it was when it was launched; run symphony up "
            "with its file first"
        )
    if not dry_run and not changes.is_empty:
        cluster.up(experiment, start=[])
    return changes


def _companions(experiment: Experiment, processes: Collection[str]) -> set[str]:
    """Return processes, and those that restart together with them."""
    chosen = [item for item in experiment.list_all_processes() if item.name in processes]
    groups = {item.group.name for item in chosen if item.group is not None}
    units = {item.settings.rank_of for item in chosen if item.settings.rank_of}
    return {
        item.name
        for item in experiment.list_all_processes()
        if item in chosen
        or (item.group is not None and item.group.name in groups)
        or item.settings.rank_of in units
    }


def put_back(
    cluster: Cluster, experiment: str, processes: Sequence[str], session: str | None = None
) -> list[str]:
    """Restart processes that are under a debugger with their ordinary settings.

    Return the names of these processes. ``session`` restricts them to those that one command has
    put under a debugger.
    """
    present = cluster.debugged_processes(experiment)
    chosen = [name for name in processes if name in present and session in (None, present[name])]
    if chosen:
        described = cluster.described_experiment(experiment)
        change_only(cluster, without_debugger(described, chosen), chosen)
    return chosen


def find_debugpy(cluster: Cluster, experiment: Experiment, process: ProcessStatus) -> int:
    """Check that debugpy is installed in the Python of a process, and return a free port.

    If the process is not running, only the port is determined. Raises `NotFound` if debugpy is not
    installed.
    """
    if process.state is not State.RUNNING:
        return _free_local_port() if cluster.ports_are_here else DEFAULT_PORT
    python = python_command(experiment, process.name).interpreter
    result = _run(cluster, experiment, process, program(python, "find_debugpy"))
    found = _output(result)
    if found is None:
        reason = _last_error(result)
        where = f"in the environment of {process.path!r}"
        raise BackendError(f"cannot run {python!r} {where}: {reason}")
    if not found["debugpy"]:
        raise missing_debugpy(process)
    port: int = found["port"]
    return port


def missing_debugpy(process: ProcessStatus) -> NotFound:
    """Return the error for a Python without debugpy."""
    return NotFound(
        f"debugpy is not installed in the Python of process {process.path!r}; install it there: "
        "pip install debugpy"
    )


def await_debugpy(
    cluster: Cluster, experiment: Experiment, process: ProcessStatus, port: int
) -> Listening:
    """Wait until debugpy listens in a process that has been restarted.

    Raises `BackendError` if the process exits before, and `NotFound` if debugpy is not installed.
    """
    python = python_command(experiment, process.name).interpreter
    command = program(python, "await_listener", str(port), str(_LISTEN_SECONDS))
    restarts: int | None = None
    while True:
        cluster.wait(experiment.name, until="started", processes=[process.name])
        present = cluster.describe_process(experiment.name, process.name, process.group)
        if restarts is None:
            restarts = present.restarts
        if present.state in ENDED or present.restarts > restarts:
            raise _exited_early(cluster, experiment.name, process)
        try:
            found = _output(_run(cluster, experiment, process, command))
        except SymphonyError:
            # The process may just have exited, or its container may not accept commands yet.
            if cluster.describe_process(experiment.name, process.name).state is State.RUNNING:
                raise
            continue
        if found is not None:
            return Listening(port=port, **found)


def _exited_early(cluster: Cluster, experiment: str, process: ProcessStatus) -> SymphonyError:
    """Return the error for a process that has exited before debugpy was listening."""
    log = cluster.get_log(experiment, process.name, process.group, tail=_LOG_LINES)
    if _MISSING in log:
        return missing_debugpy(process)
    last = (log.strip().splitlines() or ["it has written nothing"])[-1]
    return BackendError(f"process {process.path!r} exited before a debugger could connect: {last}")


def stacks(cluster: Cluster, experiment: str, process: ProcessStatus) -> str:
    """Return the stacks of the threads of a process, as py-spy prints them.

    Raises `NotFound` if py-spy is missing or there is no Python process, and `BackendError` if
    py-spy fails.
    """
    import sys
    from pathlib import Path

    from symphony.cluster.debug_programs import dump_stacks

    # Without a pid, the process is the only one in its container.
    root = "0" if process.pid is None else str(process.pid)
    directories, python = [], "python3"
    if cluster.commands_run_here:
        python = sys.executable
        directories = [str(Path(python).parent)]
    command = program(python, "dump_stacks", root, *directories)
    result = cluster.exec_command(experiment, process.name, command, process.group)
    if result.exit_code == dump_stacks.MISSING:
        raise NotFound(
            f"py-spy is not installed in the environment of {process.path!r}; install it there: "
            "pip install py-spy"
        )
    if result.exit_code == dump_stacks.NOT_PERMITTED:
        fix = "add the capability SYS_PTRACE to the process: " + _CAPABILITY
        if cluster.commands_run_here:
            fix = "run symphony as root, or set the kernel parameter kernel.yama.ptrace_scope to 0"
        raise BackendError(f"py-spy is not permitted to read {process.path!r}; {fix}")
    if result.exit_code == dump_stacks.NO_PYTHON:
        raise NotFound(f"process {process.path!r} runs no Python program, so it has no stacks")
    if result.exit_code:
        reason = _last_error(result)
        raise BackendError(f"py-spy failed for {process.path!r}: {reason}")
    return result.stdout


_CAPABILITY = "container_yml: {securityContext: {capabilities: {add: [SYS_PTRACE]}}}"


def _run(
    cluster: Cluster, experiment: Experiment, process: ProcessStatus, command: Sequence[str]
) -> ExecResult:
    """Run a command in the environment of a process, after its preamble."""
    lines = [] if cluster.exec_runs_preamble else _preamble(cluster, experiment, process.name)
    return cluster.exec_command(
        experiment.name, process.name, with_preamble(command, lines), process.group
    )


def _preamble(cluster: Cluster, experiment: Experiment, name: str) -> list[str]:
    process = next(item for item in experiment.list_all_processes() if item.name == name)
    group = [] if process.group is None else process.group.preamble_cmds
    inherited = [*cluster.defaults.preamble_cmds, *experiment.preamble_cmds, *group]
    return [*inherited, *process.preamble_cmds]


def _output(result: ExecResult) -> dict[str, Any] | None:
    """Return the JSON object that a program has printed, or None if it has failed."""
    if result.exit_code:
        return None
    try:
        found = json.loads(result.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _last_error(result: ExecResult) -> str:
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {result.exit_code}"


def _free_local_port() -> int:
    import socket

    with socket.socket() as server:
        server.bind((DEBUGGER_HOST, 0))
        port: int = server.getsockname()[1]
    return port
