"""The connection of an agent to its supervisor.

The agent connects before it imports the other modules, so that the supervisor can describe the
processes with the names of the nodes in the meantime. This module therefore imports little.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from symphony_slurm.job.agent_protocol import AGENT, SUPERVISOR, Channel, Message, connect

GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
# Slurm sets this variable for AMD GPUs. Programs then count the devices from 0.
AMD_DRIVER_VARIABLE = "ROCR_VISIBLE_DEVICES"
# The name of the node on which srun was started, as an address that other nodes can reach.
_LAUNCH_ADDRESS = "SLURM_LAUNCH_NODE_IPADDR"
CONNECT_TIMEOUT_SECONDS = 60.0
DEFAULT_TEMPORARY_DIRECTORY = "/tmp"


def allocated_gpus(environ: Mapping[str, str]) -> list[str]:
    """Return the identifiers of the GPUs that Slurm has allocated on this node."""
    for variable in GPU_VARIABLES:
        if environ.get(variable):
            return _listed(environ[variable])
    count = len(_listed(environ.get(AMD_DRIVER_VARIABLE, "")))
    return [str(number) for number in range(count)]


def temporary_directory(environ: Mapping[str, str]) -> str:
    """Return the directory for temporary files of the job on this node.

    TMPDIR can be the directory of the machine from which the job was submitted.
    """
    directory = environ.get("TMPDIR", "")
    is_usable = os.path.isdir(directory) and os.access(directory, os.W_OK)  # noqa: PTH112
    return directory if is_usable else DEFAULT_TEMPORARY_DIRECTORY


def _listed(value: str) -> list[str]:
    return [device for device in value.split(",") if device]


def connect_to_supervisor(
    directory: str, node: str, host: str, port: int, *, replaces: bool
) -> Channel:
    """Connect to the supervisor, and report this node to it.

    ``replaces`` states that this agent replaces one that was killed. Raises `ConnectionError` if
    the supervisor cannot be reached.
    """
    token = read_token(directory)
    hosts = [os.environ.get(_LAUNCH_ADDRESS, ""), host]
    addresses = [(name, port) for name in hosts if name]
    try:
        connection = connect(addresses, CONNECT_TIMEOUT_SECONDS)
    except OSError as exc:
        raise ConnectionError(f"cannot connect to the supervisor on {host}: {exc}") from exc
    channel = Channel(connection)
    if not channel.prove(token, AGENT, SUPERVISOR):
        raise ConnectionError(f"port {port} of {host} is not the supervisor of this run")
    channel.send({**introduction(node), "replaces": replaces})
    return channel


def read_token(directory: str) -> bytes:
    """Return the token of a run, which its agents and its supervisor know."""
    with open(f"{directory}/token", "rb") as file:  # noqa: PTH123
        return file.read()


def introduction(node: str) -> Message:
    """Return the first message of the agent of a node to a supervisor."""
    return {
        "event": "hello",
        "node": node,
        "host": os.uname().nodename,
        "rank": int(os.environ.get("SLURM_PROCID", "0")),
        "gpus": allocated_gpus(os.environ),
        "temporary_directory": temporary_directory(os.environ),
    }
