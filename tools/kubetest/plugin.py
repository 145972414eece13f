"""The fixtures: `kube_cluster` gives a test a Kubernetes and a namespace of its own there.

Without a cluster the tests that ask for one fail in CI (CI=true) and are loudly skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubetest import clusters
from kubetest.clusters import Cluster, NoCluster

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from kubetest.faults import FaultProxy
    from kubetest.hollow import HollowNodes
    from kubetest.rawapi import Object, RawApi

# Set by a run that was told to do without a cluster, where another run of CI has one.
WITHOUT = "SYMPHONY_TEST_WITHOUT_CLUSTER"
# Set by a run beside which another one uses the cluster.
BESIDE = "SYMPHONY_TEST_BESIDE_OTHERS"
# What the namespaces of this process's tests begin with.
PREFIX = f"symphony-test-{secrets.token_hex(3)}-"
_skipped = pytest.StashKey[str]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The cluster for a whole run, with calls to it as administrator."""

    cluster: Cluster
    api: RawApi


@dataclass(frozen=True, kw_only=True)
class KubeCluster:
    """What a test gets: the cluster, and in it an empty namespace that goes when the test ends.

    `kubeconfig` is an administrator's, with that namespace as the default.
    """

    session: Session
    namespace: str
    kubeconfig: Path
    scratch: Path
    _open: ExitStack

    @property
    def image(self) -> str:
        """The name of an image with Python, pyzmq and symphony that every node has."""
        return self.session.cluster.image

    @property
    def raw(self) -> RawApi:
        """Calls as administrator, JSON in and out."""
        return self.session.api

    @property
    def engine(self) -> clusters.Engine:
        """A docker daemon and a registry; skips the test on a cluster that has none."""
        engine = self.session.cluster.engine
        if engine is None:
            pytest.skip(f"the cluster '{self.session.cluster.kind}' has no registry of its own")
        return engine

    @property
    def kubectl(self) -> str:
        """The path of kubectl; skips the test where there is none."""
        kubectl = self.session.cluster.kubectl
        if kubectl is None:
            pytest.skip("there is no kubectl on the PATH")
        return kubectl

    @cached_property
    def client(self) -> ApiClient:
        """The official client as administrator."""
        return self.client_of(self.kubeconfig)

    def client_of(self, kubeconfig: Path) -> ApiClient:
        """Return the official client for a kubeconfig; it is closed when the test ends."""
        from kubernetes import config

        new: Callable[[str], ApiClient] = config.new_client_from_config
        client = new(str(kubeconfig))
        self._open.callback(client.close)
        return client

    def path(self, resource: str, *, group: str = "api/v1") -> str:
        """Return the API's path of a resource in the test's namespace, such as `pods/a/log`."""
        return f"/{group}/namespaces/{self.namespace}/{resource}"

    def user(self, name: str, rules: list[Object]) -> Path:
        """Make a user with these RBAC rules in the test's namespace; return its kubeconfig.

        It is a service account, so it can be had on every cluster.
        """
        from kubetest.accounts import wait_for_right

        rbac = "apis/rbac.authorization.k8s.io/v1"
        meta = {"metadata": {"name": name}}
        self.raw.call("POST", self.path("serviceaccounts"), meta)
        self.raw.call("POST", self.path("roles", group=rbac), {**meta, "rules": rules})
        binding = {
            **meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
        }
        self.raw.call("POST", self.path("rolebindings", group=rbac), binding)
        if rules:
            wait_for_right(self.raw, self.namespace, name, rules[0])
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "audiences": []},
        }
        answer = self.raw.call("POST", self.path(f"serviceaccounts/{name}/token"), request)
        return self.kubeconfig_of(name, {"token": answer["status"]["token"]})

    def quota(self, name: str, hard: dict[str, str]) -> None:
        """Make a quota of the test's namespace, such as `{"pods": "1"}`, that holds from now on.

        It allows no ConfigMaps either: by that it is known to hold.
        """
        from kubetest.accounts import wait_for_quota

        spec = {"hard": {**hard, "count/configmaps": "0"}}
        self.raw.call(
            "POST", self.path("resourcequotas"), {"metadata": {"name": name}, "spec": spec}
        )
        wait_for_quota(self.raw, self.namespace, name)

    def wait_for_pod(self, name: str, *phases: str, seconds: float = 90) -> Object:
        """Return a Pod as soon as it is in one of the phases; by default Running and ready."""
        selector = self.path(f"pods?fieldSelector=metadata.name={name}")
        pod: Object = {}
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for event in self.raw.watch(selector, seconds=left):
                pod = event["object"]
                if _reached(pod, phases):
                    return pod
        pytest.fail(
            f"Pod {name} is not {' or '.join(phases) or 'running'} after {seconds:.0f} s: "
            f"{json.dumps(pod.get('status', 'it was never there'), indent=1)[:3000]}"
        )

    def kubeconfig_of(self, name: str, user: Object) -> Path:
        """Return a kubeconfig whose user is `user`, such as {"token": ...}."""
        content = _kubeconfig(self.session.cluster.kubeconfig, self.namespace)
        content["users"] = [
            {"name": context["context"]["user"], "user": user} for context in content["contexts"]
        ]
        path = self.scratch / f"{name}.kubeconfig"
        path.write_text(json.dumps(content))
        return path


@pytest.fixture(scope="session")
def kube_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """The cluster for the whole run. Afterwards nothing of the run is in it, or the run fails."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                clusters.find(os.environ, tmp_path_factory.mktemp("cluster"))
            )
        except NoCluster as exc:
            _no_cluster(request.config, str(exc))
        from kubetest.rawapi import RawApi, access

        session = Session(cluster=cluster, api=RawApi(access(cluster.kubeconfig)))
        before = _namespaces(session.api)
        yield session
        left = _wait_until_gone(session, before=before)
        if left:
            pytest.fail(f"the tests left namespaces in the cluster: {', '.join(sorted(left))}")


@pytest.fixture
def kube_cluster(kube_session: Session, tmp_path: Path) -> Iterator[KubeCluster]:
    """A Kubernetes with an empty namespace for this test alone, which is deleted with it."""
    with a_namespace(kube_session, tmp_path) as kube_cluster:
        yield kube_cluster


@contextmanager
def a_namespace(session: Session, scratch: Path) -> Iterator[KubeCluster]:
    """An empty namespace, which is deleted at the end; `scratch` is a folder for files."""
    from kubetest.accounts import wait_for_account

    api, namespace = session.api, f"{PREFIX}{secrets.token_hex(3)}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    try:
        wait_for_account(api, namespace)
        kubeconfig = scratch / "admin.kubeconfig"
        content = _kubeconfig(session.cluster.kubeconfig, namespace)
        kubeconfig.write_text(json.dumps(content))
        with ExitStack() as stack:
            yield KubeCluster(
                session=session,
                namespace=namespace,
                kubeconfig=kubeconfig,
                scratch=scratch,
                _open=stack,
            )
    finally:
        remove_namespace(api, namespace)


def remove_namespace(api: RawApi, namespace: str) -> None:
    """Have a namespace deleted, its Pods at once; one that is gone, or goes meanwhile, is no error."""
    from kubetest.rawapi import ApiError

    try:
        api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
        api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    except ApiError as exc:
        if exc.status != 404:
            raise


@pytest.fixture
def kube_faults(kube_cluster: KubeCluster) -> Iterator[FaultProxy]:
    """A proxy before the API server that delays, drops, resets or answers as the test tells it.

    Its `kubeconfig` leads through it as administrator.
    """
    from kubetest.faults import FaultProxy

    with FaultProxy(kube_cluster.kubeconfig, scratch=kube_cluster.scratch) as proxy:
        yield proxy


@pytest.fixture
def hollow_nodes(kube_session: Session) -> Iterator[HollowNodes]:
    """Nodes without machines, whose Pods are running without containers (hollow.py)."""
    from kubetest.hollow import HollowNodes

    if not kube_session.cluster.disposable:
        pytest.skip("hollow nodes are only added to a cluster that was made for tests")
    with HollowNodes(kube_session.cluster.kubeconfig, count=4) as nodes:
        yield nodes


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take the limit off the last test's end: all namespaces are waited for there, which has a limit of its own."""
    cancel = getattr(item.config.hook, "pytest_timeout_cancel_timer", None)
    if nextitem is None and cancel is not None:
        cancel(item=item)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say loudly that nothing was tested against a Kubernetes."""
    if reason := config.stash.get(_skipped, None):
        terminalreporter.section("NOT TESTED AGAINST A KUBERNETES", sep="!", red=True, bold=True)
        terminalreporter.line(reason)


def _no_cluster(config: pytest.Config, reason: str) -> None:
    if os.environ.get("CI") == "true" and WITHOUT not in os.environ:
        pytest.fail(f"no Kubernetes in CI: {reason}", pytrace=False)
    config.stash[_skipped] = reason
    pytest.skip(f"no Kubernetes: {reason}")


def _kubeconfig(path: Path, namespace: str) -> Object:
    """Return a kubeconfig with another default namespace, and files by their full path."""
    import yaml

    content: Object = yaml.safe_load(path.read_text())
    for context in content["contexts"]:
        context["context"]["namespace"] = namespace
    for entry in (*content["clusters"], *content["users"]):
        settings = entry.get("cluster") or entry.get("user") or {}
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if key in settings:
                settings[key] = str((path.parent / settings[key]).resolve())
    return content


def _reached(pod: Object, phases: tuple[str, ...]) -> bool:
    phase = pod["status"].get("phase")
    if phases:
        return phase in phases
    conditions = pod["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return phase == "Running" and ready


def _namespaces(api: RawApi) -> set[str]:
    return {item["metadata"]["name"] for item in api.call("GET", "/api/v1/namespaces")["items"]}


def _wait_until_gone(session: Session, *, before: set[str]) -> set[str]:
    """Wait for the run's namespaces to go; return those left, and any other new one of a test.

    Where others use the cluster too, be it another part of this run, only what has the prefix is a test's.
    """
    alone = session.cluster.disposable and BESIDE not in os.environ
    deadline = time.monotonic() + 120
    while True:
        new = _namespaces(session.api) - before
        mine = new if alone else {name for name in new if name.startswith(PREFIX)}
        if not mine or time.monotonic() > deadline:
            return mine
        time.sleep(0.2)
