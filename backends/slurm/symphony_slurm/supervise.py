"""The supervisor of an experiment, which runs in the batch step of the job."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from symphony.errors import SymphonyError
from symphony.host.processes.identity import RUN_ID_VARIABLE
from symphony.host.processes.mark import remove_own_mark
from symphony.host.processes.spec import ProcessSpec, with_devices
from symphony.host.render import render
from symphony.host.run.directory import RunDirectory
from symphony.host.run.status import StatusReader
from symphony.host.supervisor.event_loop import EventLoop
from symphony.host.supervisor.supervisor import Supervisor
from symphony.model import Experiment
from symphony.plan.addresses import AddressScheme
from symphony.plan.policies import Ending
from symphony.plan.resolve import Defaults, resolve
from symphony.plan.restart_policy import Backoff
from symphony.replace_file import replace_file
from symphony.signals import reset_signals
from symphony.status import ReasonCode
from symphony_slurm.agent import AGENT, SUPERVISOR
from symphony_slurm.batch import AgentStep
from symphony_slurm.channel import Channel
from symphony_slurm.children import Agent, Agents, RemoteChildren, RemoteHost, own_node
from symphony_slurm.render import AGENT_TIMEOUT_SECONDS, HONOURED, TIMER_ERROR_SECONDS
from symphony_slurm.run_files import ALIVE_FILE, FAILURE_FILE, JOB_FILE, NODES_FILE, STOP_FILE

ALIVE_INTERVAL_SECONDS = 5.0
# How long the agents may take to exit after the experiment has finished.
AGENT_EXIT_SECONDS = 30.0
BIND_HOST = "0.0.0.0"


class JobFailed(Exception):
    """The experiment cannot be started. The message is one line."""


def run_job(directory: str, job: Mapping[str, Any], step: AgentStep) -> int:
    """Supervise the experiment with the agents that a step starts, and return its exit code."""
    reset_signals()
    os.environ.pop(RUN_ID_VARIABLE, None)
    remove_own_mark()
    run = RunDirectory(Path(directory))
    # The launcher may have been killed before it could record the number of the job.
    replace_file(run.file(JOB_FILE), [os.environ["SLURM_JOB_ID"].encode()])
    run.file(ALIVE_FILE).touch()
    try:
        return _supervise(run, job, step)
    except (JobFailed, SymphonyError) as exc:
        run.file(FAILURE_FILE).write_text(str(exc))
        sys.stderr.write(f"{exc}\n")
        return 1


def _supervise(run: RunDirectory, job: Mapping[str, Any], step: AgentStep) -> int:
    with _started_agents(run, step, job["nodes"]) as agents:
        by_slot = sorted(agents, key=lambda agent: agent.rank)
        of = {name: by_slot[slot] for name, slot in job["slots"].items()}
        manifest = _place(run, job, agents, of)
        specs = [ProcessSpec.from_dict(data) for data in manifest["processes"]]
        all_agents = Agents(agents, of)
        for agent in agents:
            agent.order(
                "prepare",
                env=manifest["env"],
                limits={spec.name: spec.log_limit for spec in specs},
            )
        supervisor = _create_supervisor(run, job, manifest, specs, all_agents)
        supervisor.launch(is_refusable=False)
        supervisor.prepare_stop()
        supervisor.run()
    return StatusReader(run).read().exit_code or 0


def _create_supervisor(
    run: RunDirectory,
    job: Mapping[str, Any],
    manifest: Mapping[str, Any],
    specs: list[ProcessSpec],
    agents: Agents,
) -> Supervisor:
    from symphony.plan.policies import Policies

    def make_children(loop: EventLoop, run: RunDirectory, on_exit: Any) -> RemoteChildren:
        _report_alive(loop, run)
        return RemoteChildren(loop, run, on_exit, agents=agents)

    return Supervisor(
        run,
        manifest["run_id"],
        {spec.name: spec for spec in specs},
        manifest["env"],
        make_children,
        backoff=Backoff(**job["backoff"]),
        policies=Policies.from_dict(manifest["policies"]),
        host=RemoteHost(agents),
        eviction=functools.partial(_eviction, run, job["warning"]),
    )


def _eviction(run: RunDirectory, warning: int) -> Ending | None:
    """Return why Slurm stops the experiment, or None if the user stops it with symphony.

    ``warning`` is the time in seconds before the end of the job at which Slurm sends SIGTERM.
    """
    if run.file(STOP_FILE).exists():
        return None
    number = os.environ["SLURM_JOB_ID"]
    end_time = os.environ.get("SLURM_JOB_END_TIME", "")
    latest = warning + TIMER_ERROR_SECONDS
    if end_time.isdecimal() and time.time() > int(end_time) - latest:
        return Ending(
            action="eviction",
            reason=f"the time limit of job {number} was reached",
            reason_code=ReasonCode.DEADLINE_EXCEEDED,
        )
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
def _started_agents(run: RunDirectory, step: AgentStep, count: int) -> Iterator[list[Agent]]:
    """Yield the agents of the nodes. Stop them at the end."""
    token = run.file("token").read_bytes()
    agents: list[Agent] = []
    try:
        _accept_agents(step, token, count, agents)
        yield agents
    finally:
        step.server.close()
        for agent in agents:
            agent.channel.close()
        try:
            step.process.wait(AGENT_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            step.process.kill()
            step.process.wait()
        step.log.close()


def _accept_agents(step: AgentStep, token: bytes, count: int, agents: list[Agent]) -> None:
    server, log = step.server, step.log
    deadline = time.monotonic() + AGENT_TIMEOUT_SECONDS
    server.settimeout(0.2)
    while len(agents) < count:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            if step.process.poll() is not None or time.monotonic() > deadline or _has_error(log):
                raise JobFailed(_missing_agents_message(log, agents, count)) from None
            continue
        channel = Channel(connection)
        if not channel.prove(token, SUPERVISOR, AGENT):
            connection.close()
            continue
        hello: list[dict[str, Any]] = []
        while not hello:
            hello = channel.receive()
        agents.append(Agent(channel, hello[0]))


def _has_error(log: IO[bytes]) -> bool:
    return bool(_last_error(log))


def _last_error(log: IO[bytes]) -> str:
    """Return the first message of an agent, or else of srun, or ``""`` if there is none."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    messages = [line.strip() for line in lines if line.strip()]
    of_agents = [line for line in messages if line.startswith("node ")]
    of_srun = [line for line in messages if "error:" in line and "Exited with exit" not in line]
    return next(iter([*of_agents, *of_srun]), "")


def _missing_agents_message(log: IO[bytes], agents: list[Agent], count: int) -> str:
    error = _last_error(log)
    if error:
        return error
    present = ", ".join(sorted(agent.node for agent in agents)) or "none"
    return (
        f"only {len(agents)} of {count} nodes ({present}) have started their agents; see "
        f"{Path(log.name).parent / 'agents.log'}"
    )


# --- placement ---


def _place(
    run: RunDirectory, job: Mapping[str, Any], agents: list[Agent], of: Mapping[str, Agent]
) -> dict[str, Any]:
    """Resolve the plan again with the nodes of the job, and return the final manifest.

    The manifest in the run directory is replaced.
    """
    experiment = Experiment.load_dict(job["experiment"])
    if job["base_dir"]:
        experiment.base_dir = job["base_dir"]
    node_of_owner = {name: agent.host for name, agent in of.items()}
    for process in experiment.list_all_processes():
        if process.group is not None:
            node_of_owner[process.group.name] = node_of_owner[process.name]
    from symphony.plan.services import service_requests

    owners = {request.name: request.owner for request in service_requests(experiment)}
    scheme = AddressScheme(
        backend=job["backend"],
        host=lambda service: node_of_owner[owners[service]],
        bind_host=BIND_HOST,
        refuse=functools.partial(_reserve, agents),
    )
    plan = resolve(experiment, scheme, Defaults(**job["defaults"]))
    manifest = render(
        plan,
        run_id=job["run_id"],
        launched=job["launched"],
        directory=run.path,
        working_directory=Path(job["working_directory"]),
        shell=shutil.which("bash") or "/bin/sh",
        honoured=HONOURED,
    )
    for agent in agents:
        ports = [
            endpoint.port
            for endpoint in plan.addresses.values()
            if node_of_owner[endpoint.owner] == agent.host
        ]
        agent.order("keep", ports=ports)
    processes = _assign_gpus(manifest.processes, of)
    data = {**replace(manifest, processes=processes).to_dict(), "slots": job["slots"]}
    replace_file(run.manifest, [json.dumps(data).encode()])
    nodes = {"batch": own_node(), "nodes": {name: agent.node for name, agent in of.items()}}
    replace_file(run.file(NODES_FILE), [json.dumps(nodes).encode()])
    return data


def _reserve(agents: list[Agent], port: int) -> str | None:
    """Reserve a port on all nodes. Return the reason why it is unavailable on one, or None.

    The agents then release the ports that no service of their node uses.
    """
    answers = [(agent, agent.ask("reserve", port=port)) for agent in agents]
    reasons = {agent.node: agent.answer(number) for agent, number in answers}
    for node, reason in reasons.items():
        if reason:
            return f"{reason} on node {node}"
    return None


def _assign_gpus(
    processes: tuple[ProcessSpec, ...], of: Mapping[str, Agent]
) -> tuple[ProcessSpec, ...]:
    """Give each process the GPUs of its node that it requests.

    If any process requests GPUs, a process that requests none sees none.
    """
    if not any(spec.gpus for spec in processes):
        return processes
    free = {agent.node: list(agent.gpus) for agent in of.values()}
    assigned = []
    for spec in processes:
        devices = free[of[spec.name].node]
        if len(devices) < spec.gpus:
            raise JobFailed(
                f"node {of[spec.name].node} has only {len(of[spec.name].gpus)} GPUs of the job, "
                f"which is too few for process {spec.path!r}"
            )
        own, free[of[spec.name].node] = devices[: spec.gpus], devices[spec.gpus :]
        assigned.append(with_devices(spec, own))
    return tuple(assigned)
