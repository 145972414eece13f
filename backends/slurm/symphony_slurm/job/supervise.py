"""The supervisor of an experiment, which runs in the batch step of the job."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import SymphonyError
from symphony.plan.policies import Ending
from symphony.plan.restart_policy import Backoff, Restart
from symphony.plan.state import Event, fold
from symphony.status import ReasonCode
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId
from symphony.supervised.processes.mark import remove_own_mark
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record import change_directory
from symphony.supervised.record.directory import RunDirectory, full_disk_errors
from symphony.supervised.record.event_file import EventReader, is_finished, previous_processes
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.guardian import FORWARDED, SUPERVISES, Link
from symphony.supervised.supervisor.supervisor import Supervisor
from symphony.support.replace_file import replace_file
from symphony_slurm.job.accept_agents import JobFailed, accept_again, accept_agents
from symphony_slurm.job.agent_returns import AgentReturns
from symphony_slurm.job.agents import Agent, Agents, own_node
from symphony_slurm.remote_children import RemoteChildren
from symphony_slurm.remote_host import RemoteHost
from symphony_slurm.run_files import (
    ALIVE_FILE,
    FAILURE_FILE,
    JOB_FILE,
    LOST_AGENTS_FILE,
    NODES_FILE,
    STOP_FILE,
)

if TYPE_CHECKING:
    from symphony_slurm.batch import AgentStep

ALIVE_INTERVAL_SECONDS = 5.0
# How long the agents may take to exit after the experiment has finished.
AGENT_EXIT_SECONDS = 30.0


def run_job(directory: str, job: Mapping[str, Any], step: AgentStep, link: Link) -> int:
    """Supervise the experiment with the agents that a step starts, and return its exit code.

    ``link`` is the connection to the guardian. If this supervisor replaces another one that was
    killed, the signals of `guardian.FORWARDED` are blocked.
    """
    os.environ.pop(RUN_ID_VARIABLE, None)
    remove_own_mark()
    run = RunDirectory(Path(directory))
    try:
        with full_disk_errors(run.path, job["process_count"]):
            is_resumed = bool(link.path) and run.file(NODES_FILE).exists()
            if not is_resumed:
                _prepare(run)
            if is_finished(run.events):
                # The job was requeued at its end.
                step.stop(0.0)
                return _exit_code(run)
            if is_resumed:
                return _resume(run, job, step, link)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            return _supervise(run, job, step)
    except (JobFailed, SymphonyError) as exc:
        _record_failure(run, str(exc))
    except OSError as exc:
        path = exc.filename or run.path
        _record_failure(run, f"node {own_node()}: cannot use {path}: {exc.strerror or exc}")
    return 1


def _prepare(run: RunDirectory) -> None:
    """Write the number of the job, and remove what describes the nodes before it was requeued."""
    # The launcher may have been killed before it could record the number of the job.
    replace_file(run.file(JOB_FILE), [os.environ["SLURM_JOB_ID"].encode()])
    run.file(ALIVE_FILE).touch()
    for name in (NODES_FILE, FAILURE_FILE, LOST_AGENTS_FILE):
        run.file(name).unlink(missing_ok=True)


def _record_failure(run: RunDirectory, message: str) -> None:
    """Record why the experiment cannot be started."""
    sys.stderr.write(f"{message}\n")
    try:
        run.file(FAILURE_FILE).write_text(message)
    except OSError:
        # On a full disk, the launcher's file can still be overwritten.
        with contextlib.suppress(OSError):
            NoteWriter(run).set("job", message)


def _supervise(run: RunDirectory, job: Mapping[str, Any], step: AgentStep) -> int:
    # A supervisor that replaces another one does not need these modules.
    from symphony_slurm.job.place import load_experiment, place

    started: list[Agent] = []
    token = run.file("token").read_bytes()
    returns = AgentReturns(step.server, token)
    with _stopping_at_end(step, started, returns):
        present = run.load_manifest()
        change_directory.finish(run, present)
        experiment = load_experiment(run)
        accept_agents(step, token, job["nodes"], started)
        agents = Agents(started, present["slots"], returns)
        manifest = place(run, job, agents, experiment, present)
        agents.prepare(manifest["env"])
        events = EventReader(run.events).read_new()
        requeues = job["requested"]["options"]["requeue"]
        restarts_left = requeues - fold([], events).evictions
        supervisor = _create_supervisor(
            run, job, manifest, agents, events, restarts_left, since=time.time()
        )
        _report_to(supervisor, agents)
        if events:
            supervisor.continue_after_eviction(_requeued(restarts_left))
        else:
            supervisor.launch(is_refusable=False)
        supervisor.prepare_stop()
        supervisor.run()
    return _end(run)


def _resume(run: RunDirectory, job: Mapping[str, Any], step: AgentStep, link: Link) -> int:
    """Continue the work of a supervisor of this job that was killed."""
    started: list[Agent] = []
    returns = AgentReturns(step.server, run.file("token").read_bytes())
    with _stopping_at_end(step, started, returns):
        manifest = run.load_manifest()
        change_directory.finish(run, manifest)
        hellos = accept_again(run, step)
        started += [agent for agent, _ in hellos]
        slots: dict[str, int] = dict(manifest["slots"])
        for rank, agent in enumerate(started):
            # Processes that a change has removed keep their slots until they have exited.
            for name in agent.executions:
                slots.setdefault(name, rank)
        for spec in previous_processes(manifest):
            slots.setdefault(spec["name"], 0)
        agents = Agents(started, slots, returns)
        agents.take_over(item for item in hellos if item[0].is_alive)
        agents.prepare(manifest["env"])
        events = EventReader(run.events).read_new()
        restarts_left = job["requested"]["options"]["requeue"] - fold([], events).evictions
        # The job has begun when the nodes were written.
        since = run.file(NODES_FILE).stat().st_mtime
        supervisor = _create_supervisor(
            run, job, manifest, agents, events, restarts_left, since=since, is_resumed=True
        )
        _report_to(supervisor, agents)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)

        def note_resumed() -> None:
            # The guardian may have been killed.
            with contextlib.suppress(OSError):
                os.write(link.messages, SUPERVISES)

        supervisor.resume(note_resumed)
        for agent in started:
            if agent.is_new:
                agents.on_replaced(agent.node)
        if any(agent.is_evicted for agent in started):
            supervisor.stop_or_evict()
        supervisor.prepare_stop()
        supervisor.run()
    return _end(run)


def _end(run: RunDirectory) -> int:
    """Note that the supervisor has finished, and return its exit code."""
    # Readers then ask Slurm for the job.
    run.file(ALIVE_FILE).unlink(missing_ok=True)
    return _exit_code(run)


def _exit_code(run: RunDirectory) -> int:
    """Return the exit code of an experiment, or 1 if it has not finished."""
    if not is_finished(run.events):
        return 1
    from symphony.supervised.record.status import StatusReader

    return StatusReader(run).read().exit_code or 0


def _create_supervisor(
    run: RunDirectory,
    job: Mapping[str, Any],
    manifest: Mapping[str, Any],
    agents: Agents,
    events: list[Event],
    restarts_left: int,
    *,
    since: float,
    is_resumed: bool = False,
) -> Supervisor:
    """Return the supervisor of a job that has begun at the time ``since``.

    If ``is_resumed`` is true, it replaces another one of the same job.
    """
    from symphony.plan.policies import Policies

    recorded = {
        ProcessId(event["pid"], event["birth"]) for event in events if event["event"] == "started"
    }

    def make_children(loop: EventLoop, run: RunDirectory, on_exit: Any) -> RemoteChildren:
        _report_alive(loop, run)
        return RemoteChildren(loop, run, on_exit, agents=agents, recorded=recorded)

    specs = [ProcessSpec.from_dict(data) for data in manifest["processes"]]
    changed: dict[str, Any] = {}
    if is_resumed:
        old_specs = [ProcessSpec.from_dict(data) for data in previous_processes(manifest)]
        changed["change"] = manifest.get("change")
        changed["old_specs"] = {spec.name: spec for spec in old_specs}
    end = _end_of_job(job["requested"], since)
    warning: int = job["requested"]["warning"]
    return Supervisor(
        run,
        manifest["run_id"],
        {spec.name: spec for spec in specs},
        manifest["env"],
        make_children,
        backoff=Backoff(**job["backoff"]),
        policies=Policies.from_dict(manifest["policies"]),
        host=RemoteHost(agents),
        events=events,
        eviction=functools.partial(_eviction, run, end, warning, restarts_left),
        **changed,
    )


def _requeued(restarts_left: int) -> Ending:
    """Return what happens to an experiment whose job was requeued."""
    number = os.environ["SLURM_JOB_ID"]
    if restarts_left > 0:
        return _restart(f"job {number} was requeued")
    return Ending(
        action="eviction",
        reason=f"job {number} was requeued more often than the option requeue allows",
        reason_code=ReasonCode.EVICTED,
    )


def _restart(cause: str) -> Ending:
    return Ending(
        action="restart",
        reason=f"the experiment restarts: {cause}",
        reason_code=ReasonCode.EXPERIMENT_RESTARTS,
        cause=cause,
        restart=Restart(delay=0.0, in_row=0),
    )


def _end_of_job(requested: Mapping[str, Any], since: float) -> float | None:
    """Return the time at which the job reaches its time limit, or None if it has none.

    It has begun at the time ``since``.
    """
    time_limit: int | None = requested["time_limit"]
    end_time = os.environ.get("SLURM_JOB_END_TIME", "")
    if end_time.isdecimal():
        return float(end_time)
    # Before version 23.02, Slurm does not set the variable.
    return since + time_limit if time_limit else None


def _eviction(
    run: RunDirectory, end: float | None, warning: int, restarts_left: int
) -> Ending | None:
    """Return why Slurm stops the experiment, or None if the user stops it with symphony.

    The job reaches its time limit at ``end``, and Slurm announces this ``warning`` seconds before
    it, or up to a minute earlier.
    """
    if run.file(STOP_FILE).exists():
        return None
    number = os.environ["SLURM_JOB_ID"]
    from symphony_slurm.render import TIMER_ERROR_SECONDS

    remaining = math.inf if end is None else end - time.time()
    if remaining < warning + TIMER_ERROR_SECONDS:
        return Ending(
            action="eviction",
            reason=f"Slurm announced the time limit of job {number}, {max(0, remaining):.0f} s "
            "before it",
            reason_code=ReasonCode.DEADLINE_EXCEEDED,
        )
    if restarts_left > 0:
        return _restart(f"job {number} was preempted or requeued")
    return Ending(
        action="eviction",
        reason=f"job {number} was canceled or preempted, or its time limit was reached",
        reason_code=ReasonCode.EVICTED,
    )


def _report_alive(loop: EventLoop, run: RunDirectory) -> None:
    """Change the time of a file at intervals, which shows readers that the supervisor works."""
    with contextlib.suppress(OSError):
        os.utime(run.file(ALIVE_FILE))
    loop.after(ALIVE_INTERVAL_SECONDS, lambda: _report_alive(loop, run))


# --- agents ---


def _report_to(supervisor: Supervisor, agents: Agents) -> None:
    """Let a supervisor hear of evictions, and record which agents were replaced."""

    def record_replacement(node: str) -> None:
        reason = f"the agent of node {node} was killed"
        supervisor.record_event("agent-replaced", reason)

    agents.on_eviction = supervisor.stop_or_evict
    agents.on_replaced = record_replacement


@contextlib.contextmanager
def _stopping_at_end(step: AgentStep, agents: list[Agent], returns: AgentReturns) -> Iterator[None]:
    """Stop the agents and their step at the end of the block."""
    try:
        yield
    finally:
        returns.close()
        for agent in agents:
            # Otherwise, it would wait for another supervisor.
            agent.channel.send({"order": "finish"})
            agent.channel.close()
        step.stop(AGENT_EXIT_SECONDS)
