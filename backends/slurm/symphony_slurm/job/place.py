"""Describing the processes of an experiment with the names of the nodes of its job."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from symphony.archive.code_archives import read_snapshots
from symphony.archive.run_record import RECORD_FILE
from symphony.model import Experiment
from symphony.plan.resolve import Defaults
from symphony.supervised.preflight import write_configs
from symphony.supervised.processes.spec import ProcessSpec, with_devices
from symphony.supervised.record.directory import RunDirectory
from symphony.support.replace_file import replace_file
from symphony_slurm.job.accept_agents import JobFailed
from symphony_slurm.job.agents import Agents, own_node
from symphony_slurm.job.placement import (
    Node,
    Placement,
    RunIdentity,
    render_placed,
    resolve_on_hosts,
)
from symphony_slurm.run_files import NODES_FILE


def load_experiment(run: RunDirectory) -> Experiment:
    """Return the description of the experiment, which can have been changed since its launch."""
    record = json.loads(run.file(RECORD_FILE).read_bytes())
    experiment = Experiment.load_dict(record["definition"])
    experiment.base_dir = record["base_directory"]
    return experiment


def place(
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
        endpoints = plan.addresses.endpoints
        ports = [endpoint.port for endpoint in endpoints if endpoint.host == agent.host]
        agent.order("keep", ports=ports)
    write_configs(run, manifest)
    data = replace(manifest, processes=_assign_gpus(manifest.processes, agents)).to_dict()
    data.update({key: present[key] for key in ("change", "previous") if key in present})
    run.replace_manifest(data)
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
