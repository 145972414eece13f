"""The cluster's status, as data and as text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from devcluster import access, api, build, cluster, control, engine, images, node, objects, parts
from devcluster.paths import Paths
from machines import processes, record
from machines.record import Record


def collect(paths: Paths) -> dict[str, Any]:
    """Return the status that `status --json` prints.

    If nothing has been started, the status is only {"up": false}.
    """
    running = record.load(paths.record)
    if running is None:
        return {"up": False}
    up = cluster.healthy(paths, running)
    version = cluster.version(paths) if up else ""
    return {
        "up": up,
        "kubernetes": version,
        "server": control.server_url(cluster.addresses_of(running)),
        "kubeconfigs": {user: str(paths.kubeconfig(user)) for user in access.PEOPLE},
        "team_namespace": access.TEAM_NAMESPACE,
        "image": images.NAME,
        "image_archive": running.image,
        "registry": node.REGISTRY,
        "docker_host": f"unix://{engine.docker_socket(paths.run)}",
        "docker": _client(paths, "docker"),
        "kubectl": str(build.program(paths.cache, "kubectl", kubernetes=version)),
        "kwok": str(build.program(paths.cache, "kwok", kubernetes=version)),
        "nodes": _nodes(paths) if up else [],
        "processes": [
            {"name": process.name, "pid": process.pid, "alive": processes.alive(process)}
            for process in (*(m.init for m in running.machines), *running.daemons.values())
        ],
        "memory_mib": memory_mib(running),
        "logs": str(paths.logs),
        "seconds": running.timings,
    }


def text(status: dict[str, Any]) -> str:
    """Return the status as human-readable text."""
    if not status["up"]:
        dead = [process["name"] for process in status.get("processes", []) if not process["alive"]]
        cause = f"{', '.join(dead)} exited" if dead else "the API server does not respond"
        if "processes" not in status:
            return "the cluster is not up"
        return f"the cluster is broken ({cause}): 'devcluster up' starts a new one"
    nodes = "\n".join(
        f"  {n['name']}  {n['address']}  {'ready' if n['ready'] else 'NOT READY'}"
        f"  gpus={n['gpus']}  taints={','.join(n['taints']) or '-'}"
        for n in status["nodes"]
    )
    return (
        f"Kubernetes {status['kubernetes']} at {status['server']}, {status['memory_mib']} MiB\n"
        f"{nodes}\n"
        f"image     {status['image']}\n"
        f"registry  {status['registry']}\n"
        f"docker    export DOCKER_HOST={status['docker_host']}\n"
        f"kubectl   export KUBECONFIG={status['kubeconfigs']['admin']}"
    )


def memory_mib(running: Record) -> int:
    """Return the memory in MiB that the cluster's processes use: the sum of their proportional set
    sizes (PSS).
    """
    namespaces = {_pid_namespace(machine.init.pid) for machine in running.machines} - {""}
    pids = [pid for pid in processes.all_pids() if _pid_namespace(pid) in namespaces]
    outside = [daemon.pid for daemon in running.daemons.values() if processes.alive(daemon)]
    return sum(processes.memory_kib(pid) for pid in {*pids, *outside}) // 1024


def _client(paths: Paths, name: str) -> str:
    unpacked = parts.runtime(paths.cache) / "root/usr/bin" / name
    if unpacked.exists():
        return str(unpacked)
    return shutil.which(name) or f"/usr/bin/{name}"


def images_text(paths: Paths) -> str:
    """Return the name of the test image and the path of its archive."""
    archive = next((paths.cache / "images").glob("*/image.tar"))
    return f"{images.NAME} {archive}"


def _pid_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _nodes(paths: Paths) -> list[dict[str, Any]]:
    listed = api.connect(paths.kubeconfig("admin")).call("GET", "/api/v1/nodes")["items"]
    return [node_summary(item) for item in listed]


def node_summary(item: dict[str, Any]) -> dict[str, Any]:
    """Return the important fields of a Node. A Node that a test has added may lack some fields."""
    status = item.get("status", {})
    addresses = status.get("addresses") or [{"address": "-"}]
    return {
        "name": item["metadata"]["name"],
        "ready": objects.is_ready(item),
        "address": addresses[0]["address"],
        "labels": item["metadata"].get("labels", {}),
        "taints": [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in item.get("spec", {}).get("taints", [])
        ],
        "gpus": int(status.get("allocatable", {}).get("nvidia.com/gpu", "0")),
    }
