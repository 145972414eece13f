"""The supervisor of an experiment, which runs in the batch step of the job."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.archive.code_archives import read_snapshots
from symphony.archive.run_record import RECORD_FILE
from symphony.errors import SymphonyError
from symphony.model import Experiment
from symphony.plan.policies import Ending
from symphony.plan.resolve import Defaults
from symphony.plan.restart_policy import Backoff, Restart
from symphony.plan.state import Event, fold
from symphony.status import ReasonCode
from symphony.supervised.preflight import write_configs
from symphony.supervised.processes.identity import RUN_ID_VARIABLE
from symphony.supervised.processes.mark import remove_own_mark
from symphony.supervised.processes.spec import ProcessSpec, with_devices
from symphony.supervised.run import change_directory
from symphony.supervised.run.directory import RunDirectory, full_disk_errors
from symphony.supervised.run.event_file import EventReader, is_finished
from symphony.supervised.run.note import NoteWriter
from symphony.supervised.run.status import StatusReader
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.supervisor import Supervisor
from symphony.support.inherited_signals import reset_signals
from symphony.support.replace_file import replace_file
from symphony_slurm.agent_protocol import AGENT, SUPERVISOR, Channel, ChannelClosed, Message
from symphony_slurm.placement import (
    Node,
    Placement,
    RunIdentity,
    render_placed,
    resolve_on_hosts,
)
from symphony_slurm.remote_children import Agent, Agents, RemoteChildren, RemoteHost, own_node
from symphony_slurm.render import AGENT_TIMEOUT_SECONDS, TIMER_ERROR_SECONDS
from symphony_slurm.run_files import ALIVE_FILE, FAILURE_FILE, JOB_FILE, NODES_FILE, STOP_FILE
from symphony_slurm.slurm import explanation, is_unreachable

if TYPE_CHECKING:
    from symphony_slurm.batch import AgentStep

ALIVE_INTERVAL_SECONDS = 5.0
# How long the agents may take to exit after the experiment has finished.
AGENT_EXIT_SECONDS = 30.0
# The pause before another attempt to start the agents. srun itself waits for slurmctld, too.
RETRY_SECONDS = 1.0
# How long another attempt may take. After slurmctld was started, srun can wait for a minute or more
# although the nodes can be used again, and another srun does not.
ATTEMPT_SECONDS = 20.0
# How the messages of srun begin, and those of the program that should have started it.
_SRUN_ERROR = "srun: error: "
_SRUN_ERRORS = (_SRUN_ERROR, "srun: fatal: ", "error: cannot run ")
# srun reports with these words that the task of an agent has failed.
_TASK_EXITED = ": Exited with exit code "
# How many messages an error quotes.
_QUOTED_MESSAGES = 3


class JobFailed(Exception):
    """The experiment cannot be started. The message is one line."""


def run_job(directory: str, job: Mapping[str, Any], step: AgentStep) -> int:
    """Supervise the experiment with the agents that a step starts, and return its exit code."""
    reset_signals()
    os.environ.pop(RUN_ID_VARIABLE, None)
    remove_own_mark()
    run = RunDirectory(Path(directory))
    try:
        with full_disk_errors(run.path, job["process_count"]):
            _prepare(run)
            if is_finished(run.events):
                # The job was requeued at its end.
                step.stop(0.0)
                return _exit_code(run)
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
    for name in (NODES_FILE, FAILURE_FILE):
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
    started: list[Agent] = []
    with _stopping_at_end(step, started):
        present = run.load_manifest()
        change_directory.finish(run, present)
        experiment = _load_experiment(run)
        _accept_agents(step, run.file("token").read_bytes(), job["nodes"], started)
        agents = Agents(started, present["slots"])
        manifest = _place(run, job, agents, experiment, present)
        specs = [ProcessSpec.from_dict(data) for data in manifest["processes"]]
        agents.prepare(manifest["env"])
        events = EventReader(run.events).read_new()
        requeues = job["requested"]["options"]["requeue"]
        restarts_left = requeues - fold([], events).evictions
        supervisor = _create_supervisor(run, job, manifest, specs, agents, events, restarts_left)
        agents.on_eviction = supervisor.stop_or_evict
        if events:
            supervisor.continue_after_eviction(_requeued(restarts_left))
        else:
            supervisor.launch(is_refusable=False)
        supervisor.prepare_stop()
        supervisor.run()
    # Readers then ask Slurm for the job.
    run.file(ALIVE_FILE).unlink(missing_ok=True)
    return _exit_code(run)


def _exit_code(run: RunDirectory) -> int:
    """Return the exit code of an experiment, or 1 if it has not finished."""
    if not is_finished(run.events):
        return 1
    return StatusReader(run).read().exit_code or 0


def _create_supervisor(
    run: RunDirectory,
    job: Mapping[str, Any],
    manifest: Mapping[str, Any],
    specs: list[ProcessSpec],
    agents: Agents,
    events: list[Event],
    restarts_left: int,
) -> Supervisor:
    from symphony.plan.policies import Policies

    def make_children(loop: EventLoop, run: RunDirectory, on_exit: Any) -> RemoteChildren:
        _report_alive(loop, run)
        return RemoteChildren(loop, run, on_exit, agents=agents)

    end = _end_of_job(job["requested"])
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


def _end_of_job(requested: Mapping[str, Any]) -> float | None:
    """Return the time at which the job reaches its time limit, or None if it has none."""
    time_limit: int | None = requested["time_limit"]
    end_time = os.environ.get("SLURM_JOB_END_TIME", "")
    if end_time.isdecimal():
        return float(end_time)
    # Before version 23.02, Slurm does not set the variable.
    return time.time() + time_limit if time_limit else None


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


@contextlib.contextmanager
def _stopping_at_end(step: AgentStep, agents: list[Agent]) -> Iterator[None]:
    """Stop the agents and their step at the end of the block."""
    try:
        yield
    finally:
        for agent in agents:
            agent.channel.close()
        step.stop(AGENT_EXIT_SECONDS)


def _accept_agents(step: AgentStep, token: bytes, count: int, agents: list[Agent]) -> None:
    server = step.server
    deadline = time.monotonic() + AGENT_TIMEOUT_SECONDS
    next_attempt = deadline
    server.settimeout(0.2)
    while len(agents) < count:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            has_ended, now = step.has_ended(), time.monotonic()
            messages = _read_messages(step)
            is_interrupted = is_unreachable(messages.of_srun) and not agents
            has_failed = messages.of_agent or (has_ended and not is_interrupted)
            if now > deadline or has_failed:
                raise JobFailed(_missing_agents_message(messages, step, agents, count)) from None
            # The job may have waited for days, and slurmctld may only be restarting.
            if (is_interrupted and has_ended) or (not agents and now > next_attempt):
                time.sleep(RETRY_SECONDS)
                step.start_again()
                next_attempt = time.monotonic() + ATTEMPT_SECONDS
            continue
        channel = Channel(connection)
        hello = _receive_hello(channel, token)
        if hello is None:
            channel.close()
        else:
            agents.append(Agent(channel, hello))


def _receive_hello(channel: Channel, token: bytes) -> Message | None:
    """Return the first message of an agent, or None if it has exited or is another program."""
    if not channel.prove(token, SUPERVISOR, AGENT):
        return None
    hello: list[Message] = []
    try:
        while not hello:
            hello = channel.receive()
    except ChannelClosed:
        return None
    return hello[0]


@dataclass(frozen=True, slots=True)
class _StepMessages:
    """The messages in the log of a step.

    ``of_agent`` is why the first agent that has failed could not work, and ``of_srun`` the first
    error of srun, or each is ``""``. ``others`` contains further messages that look like errors.
    They do not show that anything has failed: the programs of a site print such messages at the
    start of each step.
    """

    of_agent: str
    of_srun: str
    others: Sequence[str]


def _read_messages(step: AgentStep) -> _StepMessages:
    with Path(step.log).open("rb") as log:
        log.seek(step.log_start)
        text = log.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    exits = [line for line in lines if line.startswith(_SRUN_ERROR) and _TASK_EXITED in line]
    of_agents = [line for line in lines if line.startswith("node ")]
    of_srun = [line for line in lines if line.startswith(_SRUN_ERRORS) and line not in exits]
    others = [line for line in lines if "error:" in line and line not in (*exits, *of_srun)]
    return _StepMessages(
        # A message can also be that of another program on a node whose agent works.
        of_agent=of_agents[0] if of_agents and exits else "",
        of_srun=of_srun[0] if of_srun else "",
        others=list(dict.fromkeys(others)),
    )


def _missing_agents_message(
    messages: _StepMessages, step: AgentStep, agents: list[Agent], count: int
) -> str:
    if messages.of_agent:
        return messages.of_agent
    if messages.of_srun:
        return f"Slurm could not start the agents: {explanation(messages.of_srun)}"
    present = ", ".join(sorted(agent.node for agent in agents)) or "none"
    text = f"only {len(agents)} of {count} nodes ({present}) have started their agents"
    if messages.others:
        text += f" ({' / '.join(messages.others[:_QUOTED_MESSAGES])})"
    return f"{text}; see {step.log}"


# --- placement ---


def _load_experiment(run: RunDirectory) -> Experiment:
    """Return the description of the experiment, which can have been changed since its launch."""
    record = json.loads(run.file(RECORD_FILE).read_bytes())
    experiment = Experiment.load_dict(record["definition"])
    experiment.base_dir = record["base_directory"]
    return experiment


def _place(
    run: RunDirectory,
    job: Mapping[str, Any],
    agents: Agents,
    experiment: Experiment,
    present: Mapping[str, Any],
) -> dict[str, Any]:
    """Resolve the plan again with the nodes of the job, and return the final manifest.

    It replaces the manifest ``present`` in the run directory.
    """
    placement = Placement(
        batch=own_node(),
        nodes=[
            Node(
                name=agent.node,
                host=agent.host,
                gpus=agent.gpus,
                temporary_directory=agent.temporary_directory,
            )
            for agent in agents.all
        ],
        shell=shutil.which("bash") or "/bin/sh",
        hides_gpus=job["requested"]["shape"]["gpus"] > 0,
    )
    slots: dict[str, int] = present["slots"]
    plan = resolve_on_hosts(
        experiment,
        [node.host for node in placement.nodes],
        slots,
        backend=job["backend"],
        defaults=Defaults(**job["defaults"]),
        refuse=functools.partial(_reserve, agents),
        avoid=functools.partial(_avoid, agents),
    )
    identity = RunIdentity(
        run_id=job["run_id"],
        launched=job["launched"],
        directory=run.path,
        working_directory=Path(job["working_directory"]),
    )
    snapshots = read_snapshots(run.file("."))
    manifest = render_placed(plan, placement, slots, identity, snapshots)
    for agent in agents.all:
        endpoints = plan.addresses.values()
        ports = [endpoint.port for endpoint in endpoints if endpoint.host == agent.host]
        agent.order("keep", ports=ports)
    write_configs(run, manifest)
    data = replace(manifest, processes=_assign_gpus(manifest.processes, agents)).to_dict()
    data.update({key: present[key] for key in ("change", "previous") if key in present})
    replace_file(run.manifest, [json.dumps(data).encode()])
    replace_file(run.file(NODES_FILE), [placement.to_json()])
    return data


def _avoid(agents: Agents, port: int) -> bool:
    """Return whether another port is preferable on one of the nodes."""
    numbers = [(agent, agent.ask("avoid", port=port)) for agent in agents.all]
    answers = [agent.answer(number) for agent, number in numbers]
    return any(answers)


def _reserve(agents: Agents, port: int) -> str | None:
    """Reserve a port on all nodes. Return the reason why it is unavailable on one, or None.

    The agents then release the ports that no service of their node uses.
    """
    answers = [(agent, agent.ask("reserve", port=port)) for agent in agents.all]
    reasons = {agent.node: agent.answer(number) for agent, number in answers}
    for node, reason in reasons.items():
        if reason:
            return f"{reason} on node {node}"
    return None


def _assign_gpus(processes: tuple[ProcessSpec, ...], agents: Agents) -> tuple[ProcessSpec, ...]:
    """Give each process the GPUs of its node that it requests."""
    free = {agent.node: list(agent.gpus) for agent in agents.all}
    assigned = []
    for spec in processes:
        if not spec.gpus:
            assigned.append(spec)
            continue
        agent = agents.of(spec.name)
        devices = free[agent.node]
        if len(devices) < spec.gpus:
            raise JobFailed(
                f"node {agent.node} has only {len(agent.gpus)} GPUs of the job, which is too few "
                f"for process {spec.path!r}"
            )
        own, free[agent.node] = devices[: spec.gpus], devices[spec.gpus :]
        assigned.append(with_devices(spec, own))
    return tuple(assigned)
