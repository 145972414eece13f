"""Simulated nodes for scale tests, on which a thousand Pods can be in the phase Running without
containers.

The API server, the scheduler and the controllers are real. Only the kubelet is simulated: every Pod
on a hollow node is reported as running and ready at once, and is removed as soon as its deletion is
requested. The nodes have a taint. A Pod needs `TOLERATION` to run on them, and the node selector
`SELECTOR` to run only on them.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

import urllib3

from kubetest.rawapi import MERGE_PATCH, ApiError, Object, RawApi, access

LABEL = "symphony.test/hollow"
SELECTOR = {LABEL: "true"}
TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# The interval between renewals in seconds. Kubernetes marks a node as unreachable after 40 seconds
# without a renewal.
_RENEWAL = 10.0


class HollowNodes:
    """A context manager that creates several hollow nodes. On exit, the nodes are removed together
    with their Pods.
    """

    def __init__(self, kubeconfig: Path, *, count: int, pods_each: int = 500) -> None:
        self._count = count
        self._pods_each = pods_each
        self._threads = 8
        self._api = RawApi(access(kubeconfig), connections=self._threads + 2)
        self._stopping = threading.Event()
        self._addresses = itertools.count(1)
        self._handled: set[str] = set()
        self._workers: list[threading.Thread] = []
        # The names contain a random part, because the nodes of a run that was killed may still
        # exist.
        run = secrets.token_hex(3)
        self.names = [f"hollow-{run}-{number}" for number in range(1, count + 1)]

    def __enter__(self) -> HollowNodes:
        for name in self.names:
            create_node(self._api, name, LABEL, pods=self._pods_each)
            self._api.call("POST", _LEASES, _lease(name))
        self._workers = [
            threading.Thread(target=self._renew_leases, daemon=True),
            threading.Thread(target=self._simulate_kubelet, daemon=True),
        ]
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.join()
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

    def _renew_leases(self) -> None:
        """Renew the nodes' leases and statuses until the context exits."""
        while not self._stopping.wait(_RENEWAL):
            for name in self.names:
                renewal = {"spec": {"renewTime": _now(micro=True)}}
                self._api.call("PATCH", f"{_LEASES}/{name}", renewal, MERGE_PATCH)
                status = {"status": _ready_status(self._pods_each)}
                self._api.call("PATCH", f"/api/v1/nodes/{name}/status", status, MERGE_PATCH)

    def _simulate_kubelet(self) -> None:
        """Act as the kubelet for every Pod on the nodes.

        Each watch is short, so that the method soon notices when the context exits.
        """
        mine = set(self.names)
        with ThreadPoolExecutor(self._threads) as pool:
            while not self._stopping.is_set():
                try:
                    for event in self._api.watch("/api/v1/pods", seconds=1):
                        pod = event["object"]
                        if event["type"] != "DELETED" and pod["spec"].get("nodeName") in mine:
                            self._handle(pod, pool)
                except (ApiError, urllib3.exceptions.HTTPError):
                    # The watch was interrupted. The next watch starts with the current state.
                    continue

    def _handle(self, pod: Object, pool: ThreadPoolExecutor) -> None:
        meta = pod["metadata"]
        deleting = "deletionTimestamp" in meta
        key = f"{meta['uid']} {deleting}"
        if key not in self._handled:
            self._handled.add(key)
            pool.submit(self._do, self._delete if deleting else self._run, pod, key)

    def _do(self, work: Callable[[Object], None], pod: Object, key: str) -> None:
        try:
            work(pod)
        except (ApiError, urllib3.exceptions.HTTPError):
            # The next watch starts with the current state, which includes this Pod.
            self._handled.discard(key)

    def _run(self, pod: Object) -> None:
        meta = pod["metadata"]
        number = next(self._addresses)
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        status = running_status(pod, address=f"10.245.{number // 250}.{number % 250 + 1}")
        try:
            self._api.call("PATCH", path, {"status": status}, MERGE_PATCH)
        except ApiError as exc:
            if exc.status != 404:  # A status of 404 means that the Pod has been deleted.
                raise

    def _delete(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._delete_object(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")

    def _delete_object(self, path: str) -> None:
        try:
            self._api.call("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as exc:
            if exc.status != 404:
                raise


def create_node(api: RawApi, name: str, label: str, *, pods: int) -> None:
    """Create a node that accepts at most ``pods`` Pods, and only those that tolerate the taint
    ``label``.

    The node has a label with the same key and the value ``"true"``. Without a kubelet, Kubernetes
    marks the node as unreachable after about a minute.
    """
    labels = {label: "true", "kubernetes.io/hostname": name}
    taint = {"key": label, "value": "true", "effect": "NoSchedule"}
    node = {
        "metadata": {"name": name, "labels": labels},
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


def _lease(name: str) -> Object:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now(micro=True)}
    return {"metadata": {"name": name}, "spec": spec}


def _now(*, micro: bool = False) -> str:
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.now(timezone.utc).strftime(form)
