"""The surroundings of a round on Kubernetes: a namespace, and a proxy that interrupts connections.

The cluster is selected as for the tests, but a kind cluster is not created; see
`kubetest.clusters`. `prepare` selects it for all rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubetest import clusters
from kubetest.accounts import wait_for_account
from kubetest.clusters import NoCluster
from kubetest.faults import FaultProxy
from kubetest.rawapi import ApiError, RawApi, access
from symphony import Cluster
from symphony.plan.restart_policy import Backoff
from torture import checks
from torture.checks import FoundProcess
from torture.children import Child
from torture.workspace import KUBE, Workspace

_KUBECONFIG, _IMAGE = "SYMPHONY_TEST_KUBECONFIG", "SYMPHONY_TEST_IMAGE"
_SELECTOR = "labelSelector=app.kubernetes.io/managed-by=symphony"
_KINDS = {
    **dict.fromkeys(("pods", "services", "secrets", "configmaps", "serviceaccounts"), "api/v1"),
    "jobs": "apis/batch/v1",
    **dict.fromkeys(("roles", "rolebindings"), "apis/rbac.authorization.k8s.io/v1"),
}
# The commands of the proxy, and its answer to each of them.
RESET, HANG, RESTORE = "reset", "hang", "restore"
_DONE = b"."
_SUPERVISOR = "symphony_kube.lifecycle.supervisor"


def prepare() -> str:
    """Select the cluster for all rounds. Return why there is none, or ``""``."""
    if _KUBECONFIG not in os.environ and clusters.kind_engine() is not None:
        return f"a kind cluster is not created: set {_KUBECONFIG} and {_IMAGE}"
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            cluster = stack.enter_context(clusters.find(os.environ, scratch))
        except NoCluster as exc:
            return str(exc)
        os.environ |= {_KUBECONFIG: str(cluster.kubeconfig), _IMAGE: cluster.image}
    return ""


class KubeWorkspace(Workspace):
    """The surroundings of one round in a namespace of its own.

    All commands use the proxy, and so does the status, because the supervisor of an experiment is
    found by the address of the API server. The objects are listed without the proxy.
    """

    # The supervisor notices only after this time that its watch has become silent.
    settle_seconds = 240.0

    interruptions: Sequence[str] = (
        "client",
        "client",
        "supervisor",
        "both",
        "connection",
        "silent connection",
    )

    def __init__(self, seed: int, directory: Path, *, quick: bool = False) -> None:
        super().__init__(KUBE, seed, directory, quick=quick)
        self._namespace = f"symphony-torture-{secrets.token_hex(4)}"
        self._is_shared = True

    def __enter__(self) -> KubeWorkspace:
        super().__enter__()
        kubeconfig = Path(os.environ[_KUBECONFIG])
        self._api = RawApi(access(kubeconfig))
        self._api.call("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        self.on_exit(self._remove_namespace)
        wait_for_account(self._api, self._namespace)
        self._start_proxy(kubeconfig)
        return self

    def _start_proxy(self, kubeconfig: Path) -> None:
        """Start the proxy in a process of its own, whose connections no command inherits."""
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        scratch = self.directory / "proxy"
        scratch.mkdir()
        run = partial(_run_proxy, kubeconfig, scratch, orders, answers, self._orders)
        proxy = Child(run, self.directory / "commands" / "proxy")
        self.on_exit(proxy.kill)
        os.close(orders)
        os.close(answers)
        self._await_proxy()
        os.environ |= {
            "SYMPHONY_KUBECONFIG": str(scratch / "faults.kubeconfig"),
            "SYMPHONY_NAMESPACE": self._namespace,
            "SYMPHONY_IMAGE": os.environ[_IMAGE],
        }

    def _remove_namespace(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}"
        with contextlib.suppress(ApiError):
            self._api.call("DELETE", f"{path}/pods", {"gracePeriodSeconds": 0})
        # The namespace of an experiment is deleted with it.
        with contextlib.suppress(ApiError):
            self._api.call("DELETE", path)

    def order(self, word: str) -> None:
        """Give the proxy an order, which is `RESET`, `HANG` or `RESTORE`, and wait for it."""
        os.write(self._orders, f"{word}\n".encode())
        self._await_proxy()

    def _await_proxy(self) -> None:
        if os.read(self._answers, 1) != _DONE:
            raise RuntimeError("the proxy has exited")

    @contextlib.contextmanager
    def interrupted_connection(self, attack: str) -> Iterator[None]:
        """Interrupt all connections to the API server inside the block, and restore them then."""
        self.order(HANG if attack == "silent connection" else RESET)
        try:
            yield
        finally:
            self.order(RESTORE)

    def cluster(self, backoff: Backoff | None = None) -> Cluster:
        """Return the cluster."""
        del backoff
        return Cluster.new(
            KUBE,
            kubeconfig=os.environ["SYMPHONY_KUBECONFIG"],
            namespace=self._namespace if self._is_shared else None,
            image=os.environ[_IMAGE],
        )

    def use_own_namespaces(self) -> str:
        """Use a namespace for each experiment, and return the name of this round's namespace.

        The experiment is in another namespace than the objects of the round.
        """
        del os.environ["SYMPHONY_NAMESPACE"]
        self._remove_namespace()
        self._namespace = f"{self._namespace}-own"
        self._is_shared = False
        return self._namespace

    def supervisors(self) -> list[FoundProcess]:
        """Return the supervisors, which run on this machine."""
        return [found for found in self.processes() if _SUPERVISOR in found.command]

    def running_texts(self) -> dict[tuple[str, str], str]:
        """Return the identities of the Pods whose containers are running."""
        found: dict[tuple[str, str], str] = {}
        for pod in self._list("pods"):
            container = pod["spec"]["containers"][0]
            env = {item["name"]: item.get("value") for item in container.get("env") or ()}
            if _is_running(pod):
                key = (env["SYMPHONY_ROLE"], env.get("TEXT", ""))
                uid = pod["metadata"]["uid"]
                found[key] = f"{found[key]}, {uid}" if key in found else uid
        return found

    def has_objects(self) -> bool:
        """Return whether the description of an experiment or its own namespace exists."""
        if self._is_shared:
            return bool(self._list("secrets"))
        return self._api.find(f"/api/v1/namespaces/{self._namespace}") is not None

    def left_objects(self, name: str) -> list[str]:
        """Return the objects of symphony in the namespace, and the namespace if it is its own."""
        left = []
        for kind in _KINDS:
            left += [f"{kind} {item['metadata']['name']}" for item in self._list(kind)]
        if not self._is_shared and self._api.find(f"/api/v1/namespaces/{name}") is not None:
            left.append(f"namespace {name}")
        return left

    def _list(self, kind: str) -> list[Mapping[str, Any]]:
        path = f"/{_KINDS[kind]}/namespaces/{self._namespace}/{kind}?{_SELECTOR}"
        items: list[Mapping[str, Any]] = self._api.call("GET", path)["items"]
        return items

    def check_status(self) -> None:
        """Check that the processes that are shown as running are those that are running."""
        self.wait_for(lambda: not self._differences(), self._differences)

    def _differences(self) -> list[str]:
        status = self.status()
        running = {name for name, _ in self.running_texts()}
        shown = {item.name for item in status or () if str(item.state) == "running"}
        return [f"{sorted(running)} is running, but {sorted(shown)} is shown"] * (running != shown)

    def check_end(self) -> None:
        """Check that all is deleted completely."""
        self._check_commands_have_exited()
        # Other programs can have experiments with their own namespaces.
        if self._is_shared:
            self.delete_all()
        self.refuse([f"{found} is left" for found in self.left_objects(self._namespace)])
        self.refuse(checks.left_processes(self.supervisors()))
        self.refuse(checks.left_files(self.root))


def _is_running(pod: Mapping[str, Any]) -> bool:
    status = pod["status"]
    if status.get("phase") != "Running":
        return False
    return all("running" in item["state"] for item in status.get("containerStatuses") or ())


def _run_proxy(kubeconfig: Path, scratch: Path, orders: int, answers: int, other_end: int) -> int:
    os.close(other_end)
    with FaultProxy(kubeconfig, scratch=scratch) as proxy, os.fdopen(orders) as lines:
        # The property writes the file.
        json.loads(proxy.kubeconfig.read_text())
        os.write(answers, _DONE)
        for line in lines:
            word = line.strip()
            if word == RESTORE:
                proxy.restore()
            else:
                proxy.interrupt(silent=word == HANG)
            os.write(answers, _DONE)
    return 0
