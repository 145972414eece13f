"""Waiting for the agents of a job to connect to its supervisor."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.supervised.record.directory import RunDirectory
from symphony_slurm.job.agent_protocol import Channel, Message, receive_hello
from symphony_slurm.job.agents import Agent, lost_agents, note_lost
from symphony_slurm.run_files import AGENT_TIMEOUT_SECONDS, NODES_FILE
from symphony_slurm.slurm import explanation, is_unreachable

if TYPE_CHECKING:
    from symphony_slurm.batch import AgentStep

if TYPE_CHECKING:
    from symphony_slurm.batch import AgentStep

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
# How long a new supervisor waits for the agents, which connect to it within milliseconds.
RECONNECT_SECONDS = 5.0
# How many messages an error quotes.
_QUOTED_MESSAGES = 3


class JobFailed(Exception):
    """The experiment cannot be started. The message is one line."""


def accept_agents(step: AgentStep, token: bytes, count: int, agents: list[Agent]) -> None:
    """Wait until ``count`` agents are connected, and add them to ``agents``.

    Raises JobFailed if agents cannot work or do not come in time.
    """
    server = step.server
    deadline = time.monotonic() + AGENT_TIMEOUT_SECONDS
    next_attempt = deadline
    server.settimeout(0.2)
    while len(agents) < count:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            has_ended, now = step.has_ended(), time.monotonic()
            messages = read_messages(step)
            is_interrupted = is_unreachable(messages.of_srun) and not agents
            has_failed = messages.of_agent or (has_ended and not is_interrupted)
            if now > deadline or has_failed:
                raise JobFailed(missing_agents_message(messages, step, agents, count)) from None
            # The job may have waited for days, and slurmctld may only be restarting.
            if (is_interrupted and has_ended) or (not agents and now > next_attempt):
                time.sleep(RETRY_SECONDS)
                step.start_again()
                next_attempt = time.monotonic() + ATTEMPT_SECONDS
            continue
        channel = Channel(connection)
        hello = receive_hello(channel, token)
        if hello is None:
            channel.close()
        else:
            # If an agent was killed in the meantime, another one connects with the same rank.
            for killed in [agent for agent in agents if agent.rank == hello["rank"]]:
                killed.channel.close()
                agents.remove(killed)
            agents.append(Agent(channel, hello))


def accept_again(run: RunDirectory, step: AgentStep) -> list[tuple[Agent, Message]]:
    """Wait for the agents, which have lost their supervisor, and return them in their order.

    An agent that does not come counts as lost.
    """
    token = run.file("token").read_bytes()
    # The module `placement` imports all that a launch needs.
    nodes: list[dict[str, Any]] = json.loads(run.file(NODES_FILE).read_bytes())["nodes"]
    expected = set(range(len(nodes))) - lost_agents(run)
    hellos: dict[int, Message] = {}
    channels: dict[int, Channel] = {}
    deadline = time.monotonic() + RECONNECT_SECONDS
    while expected.difference(hellos) and time.monotonic() < deadline:
        step.server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            connection, _ = step.server.accept()
        except TimeoutError:
            break
        channel = Channel(connection)
        hello = receive_hello(channel, token)
        if hello is None:
            channel.close()
        else:
            hellos[hello["rank"]], channels[hello["rank"]] = hello, channel
    found = []
    for rank, node in enumerate(nodes):
        if rank in hellos:
            agent = Agent(channels[rank], hellos[rank])
        else:
            note_lost(run, rank)
            agent = Agent.lost(rank, node)
        found.append((agent, hellos.get(rank, {})))
    return found


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


def read_messages(step: AgentStep) -> _StepMessages:
    """Return what the log of a step contains."""
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


def missing_agents_message(
    messages: _StepMessages, step: AgentStep, agents: list[Agent], count: int
) -> str:
    """Return why not all of ``count`` agents are connected."""
    if messages.of_agent:
        return messages.of_agent
    if messages.of_srun:
        return f"Slurm could not start the agents: {explanation(messages.of_srun)}"
    present = ", ".join(sorted(agent.node for agent in agents)) or "none"
    text = f"only {len(agents)} of {count} nodes ({present}) have started their agents"
    if messages.others:
        text += f" ({' / '.join(messages.others[:_QUOTED_MESSAGES])})"
    return f"{text}; see {step.log}"
