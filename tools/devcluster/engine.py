"""Run a docker daemon and a registry in a machine that shares the host's network.

Because the network is shared, `docker push` reaches the registry on the host's loopback interface
and needs no certificate, and a build with `--network=host` reaches the same addresses as the host.
The nodes pull images through a second listener on the bridge. The daemon creates no bridge and no
firewall rule, so a container has no network unless it uses the host's network.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from devcluster.network import Addresses, with_port
from devcluster.node import CGROUP, REGISTRY_PORT
from machines.console import RequirementError

LISTENERS = ("registry", "registry-for-nodes")


def docker_socket(run: Path) -> Path:
    """Return the path of the daemon's socket.

    Raises RequirementError if the path is too long for a socket.
    """
    path = run / "docker.sock"
    if len(str(path)) > 100:  # The field sun_path holds 108 bytes; see unix(7).
        raise RequirementError(
            f"{path} is too long for a socket: set XDG_STATE_HOME to a shorter path"
        )
    return path


def check_port() -> None:
    """Raise RequirementError if another program listens on the registry's port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", REGISTRY_PORT))
        except OSError:
            raise RequirementError(
                f"port {REGISTRY_PORT} on 127.0.0.1, which the cluster's registry needs, is in "
                f"use: stop the process that 'ss -ltnp sport = :{REGISTRY_PORT}' shows"
            ) from None


def docker_daemon(run: Path) -> list[str]:
    """Write dockerd's configuration file, and return its command line.

    All of dockerd's files are below `run` or inside its machine.
    """
    config = run / "docker.json"
    config.write_text("{}\n")
    return [
        "dockerd",
        f"--config-file={config}",
        f"--host=unix://{docker_socket(run)}",
        f"--data-root={run / 'docker'}",
        "--exec-root=/run/docker",
        "--pidfile=/run/docker.pid",
        f"--cgroup-parent={CGROUP}/docker",
        "--oom-score-adjust=0",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--ip-masq=false",
        "--userland-proxy=false",
    ]


def registry(run: Path, name: str, addresses: Addresses) -> list[str]:
    """Write the registry's configuration file for one listener, and return the command line.

    All listeners serve the same images.
    """
    config = run / f"{name}.json"
    address = addresses.host if name == "registry-for-nodes" else "127.0.0.1"
    content = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(run / "registry")},
            "delete": {"enabled": True},
        },
        "http": {"addr": with_port(address, REGISTRY_PORT)},
    }
    config.write_text(json.dumps(content, indent=1))
    return ["docker-registry", "serve", str(config)]
