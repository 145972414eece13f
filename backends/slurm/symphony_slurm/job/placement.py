"""The nodes of a running job, and the description of an experiment that runs on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme, PortCheck
from symphony.plan.resolve import Defaults, resolve
from symphony.supervised.processes.scratch import SCRATCH_VARIABLE
from symphony.supervised.processes.spec import ProcessSpec, with_devices
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.render import HostManifest, render
from symphony_slurm.job.agent_connection import DEFAULT_TEMPORARY_DIRECTORY
from symphony_slurm.job.step_variables import with_step_variables
from symphony_slurm.render import HONOURED
from symphony_slurm.run_files import NODES_FILE

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeSnapshot
    from symphony.model import Experiment

BIND_HOST = "0.0.0.0"
# The length of the identifier in the path of the scratch directories, which other users cannot
# guess.
_RUN_ID_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a job.

    ``name`` is Slurm's name of it, and ``host`` the name by which other nodes connect to it.
    ``gpus`` contains the identifiers of its GPUs that belong to the job. ``temporary_directory`` is
    its directory for temporary files of the job.
    """

    name: str
    host: str
    gpus: Sequence[str] = ()
    temporary_directory: str = DEFAULT_TEMPORARY_DIRECTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The nodes of a running job, in the order of the slots.

    ``batch`` is the name of the node of the supervisor. ``shell`` is the program that runs shell
    lines. If ``hides_gpus`` is true, processes that request no GPU see none.
    """

    batch: str
    nodes: Sequence[Node]
    shell: str
    hides_gpus: bool

    def to_json(self) -> bytes:
        """Return the contents of the file of the placement."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def before_start(cls, nodes: int, gpus: int) -> Placement:
        """Return the placement of a job that has not started, with placeholders.

        ``gpus`` is the number of GPUs of each node.
        """
        hosts = placeholder_hosts(nodes)
        return cls(
            batch=hosts[0],
            nodes=[Node(name=host, host=host) for host in hosts],
            shell=shutil.which("bash") or "/bin/sh",
            hides_gpus=gpus > 0,
        )

    @classmethod
    def load(cls, run: RunDirectory) -> Placement:
        """Return the placement of a run. Raises OSError or ValueError if there is none."""
        data: dict[str, Any] = json.loads(run.file(NODES_FILE).read_bytes())
        return cls(**{**data, "nodes": [Node(**node) for node in data["nodes"]]})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedManifest(HostManifest):
    """The processes of an experiment that runs in a job. ``slots`` are the nodes of processes."""

    slots: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the manifest file as a dictionary of JSON-serializable values."""
        return {**HostManifest.to_dict(self), "slots": dict(self.slots)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """The content of the manifest of a run in addition to its plan; see `HostManifest`."""

    run_id: str
    launched: float
    directory: Path
    working_directory: Path


def placeholder_hosts(nodes: int) -> list[str]:
    """Return the hosts in addresses before Slurm has chosen the nodes."""
    return [f"node-{number}" for number in range(nodes)]


def owners_of_services(experiment: Experiment) -> dict[str, str]:
    """Return the names of the processes and groups that bind the services."""
    from symphony.plan.resolution.services import service_requests

    return {request.name: request.owner for request in service_requests(experiment)}


def resolve_on_hosts(
    experiment: Experiment,
    hosts: Sequence[str],
    slots: Mapping[str, int],
    *,
    backend: str,
    defaults: Defaults,
    refuse: PortCheck = lambda _: None,
    avoid: Callable[[int], bool] = lambda _: False,
    present: Mapping[str, int] | None = None,
) -> Plan:
    """Return the plan of an experiment whose slots are on ``hosts``.

    ``slots`` maps the names of processes to slots. Without an entry, the slot is 0. For ``refuse``,
    ``avoid`` and ``present``, see `AddressScheme`.
    """
    owners = owners_of_services(experiment)
    slots = {**slots, **_slots_of_groups(experiment, slots)}
    scheme = AddressScheme(
        backend=backend,
        host=lambda service: hosts[slots.get(owners[service], 0)],
        bind_host=BIND_HOST,
        refuse=refuse,
        avoid=avoid,
        present=present or {},
        node=lambda process: slots.get(process, 0),
    )
    return resolve(experiment, scheme, defaults)


def _slots_of_groups(experiment: Experiment, slots: Mapping[str, int]) -> dict[str, int]:
    return {
        process.group.name: slots[process.name]
        for process in experiment.list_all_processes()
        if process.group is not None and process.name in slots
    }


def render_placed(
    plan: Plan,
    placement: Placement,
    slots: Mapping[str, int],
    identity: RunIdentity,
    snapshots: Mapping[str, CodeSnapshot],
) -> PlacedManifest:
    """Return the manifest of a plan whose processes have ``slots`` and the code ``snapshots``."""
    manifest = render(
        plan,
        run_id=identity.run_id,
        launched=identity.launched,
        directory=identity.directory,
        working_directory=identity.working_directory,
        shell=placement.shell,
        honoured=HONOURED,
        snapshots=snapshots,
        copies_code=True,
    )
    fields = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}
    processes = []
    for spec in manifest.processes:
        if placement.hides_gpus and not spec.gpus:
            spec = with_devices(spec, ())
        node = placement.nodes[slots[spec.name]]
        processes.append(_with_scratch_directory(spec, node, identity.run_id))
    names = [node.name for node in placement.nodes]
    fields["processes"] = with_step_variables(processes, manifest.env, names, slots)
    return PlacedManifest(**fields, slots=slots)


def _with_scratch_directory(spec: ProcessSpec, node: Node, run_id: str) -> ProcessSpec:
    """Return a copy whose scratch directory is on the node of the process."""
    root = f"{node.temporary_directory}/symphony-{run_id[:_RUN_ID_LENGTH]}"
    return replace(spec, env={**spec.env, SCRATCH_VARIABLE: f"{root}/{spec.name}"})


def before_placement(manifest: HostManifest, nodes: int, slots: Mapping[str, int]) -> HostManifest:
    """Return a manifest of processes whose nodes, and scratch directories, are not known."""
    processes = []
    for spec in manifest.processes:
        env = {key: value for key, value in spec.env.items() if key != SCRATCH_VARIABLE}
        processes.append(replace(spec, env=env))
    names = placeholder_hosts(nodes)
    return replace(manifest, processes=with_step_variables(processes, manifest.env, names, slots))
