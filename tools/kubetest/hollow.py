"""Simulated nodes for scale tests, on which thousands of Pods can be in the phase Running without
containers.

The API server, the scheduler and the controllers are real. The kubelets are simulated by kwok
(https://kwok.sigs.k8s.io): every Pod on a hollow node is reported as running and ready at once, and
is removed as soon as its deletion is requested. The nodes have a taint. A Pod needs `TOLERATION` to
run on them, and the node selector `SELECTOR` to run only on them.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from kubetest.rawapi import MERGE_PATCH, ApiError, Object, RawApi, access

LABEL = "symphony.test/hollow"
SELECTOR = {LABEL: "true"}
TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}
_RUN = "symphony.test/hollow-run"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# What kwok does with the nodes and the Pods: files of its module. Without the stage `pod-complete`,
# the Pods of a Job keep running.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
# By default, kwok starts and removes only four Pods at the same time, although it simulates many
# nodes. With a configuration, the other options have no defaults.
_KWOK_OPTIONS = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  cidr: 10.0.0.0/24
  nodeLeaseParallelism: 4
  nodePlayStageParallelism: 4
  podPlayStageParallelism: 32
  podsOnNodeSyncParallelism: 4
"""


class HollowNodes:
    """A context manager that creates several hollow nodes. On exit, the nodes are removed together
    with their Pods.

    `kwok` is the path of the program, beside which the directory `stage` of its module must be.
    """

    def __init__(self, kubeconfig: Path, *, kwok: Path, count: int, pods_each: int = 500) -> None:
        self._kubeconfig = kubeconfig
        self._kwok = kwok
        self._pods_each = pods_each
        self._threads = 8
        self._api = RawApi(access(kubeconfig), connections=self._threads)
        # The names contain a random part, because the nodes of a run that was killed may still
        # exist.
        self._run = secrets.token_hex(3)
        self.names = [f"hollow-{self._run}-{number}" for number in range(1, count + 1)]

    def __enter__(self) -> HollowNodes:
        for name in self.names:
            create_node(
                self._api,
                name,
                LABEL,
                pods=self._pods_each,
                labels={_RUN: self._run},
                annotations={"kwok.x-k8s.io/node": "fake"},
            )
        self._log = tempfile.TemporaryFile()
        self._options = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        self._options.write(_KWOK_OPTIONS)
        self._options.flush()
        stages = [f"--config={self._kwok.parent / 'stage' / name}" for name in _STAGES]
        self._process = subprocess.Popen(
            [
                self._kwok,
                f"--kubeconfig={self._kubeconfig}",
                f"--manage-nodes-with-label-selector={_RUN}={self._run}",
                "--manage-all-nodes=false",
                "--node-lease-duration-seconds=40",
                f"--config={self._options.name}",
                *stages,
            ],
            stdout=self._log,
            stderr=self._log,
            # kwok reads a configuration file in the home directory, if there is one.
            env={**os.environ, "HOME": "/nonexistent"},
        )
        deadline = time.monotonic() + 60
        while not all(self._accepts_pods(name) for name in self.names):
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._log.seek(0)
                output = self._log.read().decode(errors="replace")[-500:]
                self.__exit__(None, None, None)
                raise RuntimeError(f"the hollow nodes did not become ready; kwok wrote: {output}")
            time.sleep(0.1)
        return self

    def _accepts_pods(self, name: str) -> bool:
        """Return whether kwok manages a node, and Kubernetes has removed the taint of a node that
        is not ready yet.
        """
        if self._api.find(f"{_LEASES}/{name}") is None:
            return False
        node = self._api.call("GET", f"/api/v1/nodes/{name}")
        return [taint["key"] for taint in node["spec"].get("taints", [])] == [LABEL]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()
        self._options.close()
        # If these nodes remained schedulable, new Pods of a Job would be scheduled on them while
        # the old Pods are removed.
        closed = {"spec": {"unschedulable": True}}
        for name in self.names:
            self._api.call("PATCH", f"/api/v1/nodes/{name}", closed, MERGE_PATCH)
        with ThreadPoolExecutor(self._threads) as pool:
            for name in self.names:
                pods = self._api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={name}")
                list(pool.map(self._delete, pods["items"]))
        for name in self.names:
            self._api.call("DELETE", f"/api/v1/nodes/{name}")
            self._delete_object(f"{_LEASES}/{name}")

    def _delete(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._delete_object(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")

    def _delete_object(self, path: str) -> None:
        try:
            self._api.call("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as exc:
            if exc.status != 404:
                raise


def create_node(
    api: RawApi,
    name: str,
    label: str,
    *,
    pods: int,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Create a node that accepts at most ``pods`` Pods, and only those that tolerate the taint
    ``label``.

    The node has a label with the same key and the value ``"true"``. Without a kubelet, Kubernetes
    marks the node as unreachable after about a minute.
    """
    all_labels = {label: "true", "kubernetes.io/hostname": name, **(labels or {})}
    taint = {"key": label, "value": "true", "effect": "NoSchedule"}
    node = {
        "metadata": {"name": name, "labels": all_labels, "annotations": dict(annotations or {})},
        "spec": {"taints": [taint]},
        "status": _ready_status(pods),
    }
    api.call("POST", "/api/v1/nodes", node)


def _ready_status(pods: int) -> Object:
    capacity = {"cpu": "1000", "memory": "1000Gi", "pods": str(pods)}
    ready = {"type": "Ready", "status": "True", "reason": "Hollow", "lastHeartbeatTime": _now()}
    return {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}


def running_status(pod: Object, *, address: str) -> Object:
    """Return a status for `pod` in which all its containers are running."""
    now = _now()
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "hollow",
                "containerID": f"hollow://{pod['metadata']['uid']}/{container['name']}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
