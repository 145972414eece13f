"""The fixtures for tests on Kubernetes. `kube_cluster` provides a cluster with a separate
namespace for each test.

If there is no cluster, the tests that need one fail in CI (CI=true), unless the variable that
`WITHOUT_CLUSTER` names is set. Otherwise, they are skipped, and a prominent message is printed.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubetest import clusters
from kubetest.clusters import Cluster, NoCluster
from kubetest.namespaces import Namespaces

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from kubetest.faults import FaultProxy
    from kubetest.hollow import HollowNodes
    from kubetest.memory import Pods
    from kubetest.rawapi import Object, RawApi

# scripts/test sets this variable unless it starts a cluster. The tests that need a cluster are then
# skipped, even in CI.
WITHOUT_CLUSTER = "SYMPHONY_TEST_WITHOUT_CLUSTER"
# This variable is set if another process uses the cluster at the same time.
SHARED_CLUSTER = "SYMPHONY_TEST_BESIDE_OTHERS"
# The prefix of the namespaces that this process's tests create.
PREFIX = f"symphony-test-{secrets.token_hex(3)}-"
SKIP_PREFIX = "no Kubernetes: "
_HAS_FAILED = pytest.StashKey[bool]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The cluster for the whole run, with a client that has administrator permissions."""

    cluster: Cluster
    api: RawApi
    namespaces: Namespaces


@dataclass(frozen=True, kw_only=True)
class KubeCluster:
    """The cluster that a test receives, with an empty namespace.

    `kubeconfig` is an administrator's kubeconfig, with this namespace as the default. If
    `is_discarded` is set, no other test uses the namespace later.
    """

    session: Session
    namespace: str
    kubeconfig: Path
    scratch: Path
    is_discarded: threading.Event
    _open: ExitStack

    @property
    def image(self) -> str:
        """The name of an image that contains Python, pyzmq and symphony, and is available on every
        node.
        """
        return self.session.cluster.image

    @property
    def raw(self) -> RawApi:
        """A client for JSON requests with administrator permissions."""
        return self.session.api

    @property
    def engine(self) -> clusters.Engine:
        """A docker daemon and a registry.

        If the cluster does not provide them, the test is skipped.
        """
        engine = self.session.cluster.engine
        if engine is None:
            pytest.skip(f"the cluster '{self.session.cluster.kind}' has no registry")
        return engine

    @property
    def kubectl(self) -> str:
        """The path of kubectl. If kubectl is not installed, the test is skipped."""
        kubectl = self.session.cluster.kubectl
        if kubectl is None:
            pytest.skip("there is no kubectl on the PATH")
        return kubectl

    @cached_property
    def client(self) -> ApiClient:
        """The official Kubernetes client, with administrator permissions."""
        return self.client_of(self.kubeconfig)

    def client_of(self, kubeconfig: Path) -> ApiClient:
        """Return the official Kubernetes client, configured with a kubeconfig.

        The client is closed when the test finishes.
        """
        from kubernetes import config

        new: Callable[[str], ApiClient] = config.new_client_from_config
        client = new(str(kubeconfig))
        self._open.callback(client.close)
        return client

    def path(self, resource: str, *, group: str = "api/v1") -> str:
        """Return the API path of a resource, such as `pods/a/log`, in the test's namespace."""
        return f"/{group}/namespaces/{self.namespace}/{resource}"

    def user(self, name: str, rules: list[Object]) -> Path:
        """Create a user with the given RBAC rules in the test's namespace, and return the user's
        kubeconfig.

        The user is a service account, because every cluster supports service accounts.
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
        return self.user_of_account(name)

    def user_of_account(self, name: str) -> Path:
        """Return the kubeconfig of the user that a service account in the test's namespace is."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "audiences": []},
        }
        answer = self.raw.call("POST", self.path(f"serviceaccounts/{name}/token"), request)
        return self.kubeconfig_of(name, {"token": answer["status"]["token"]})

    def quota(self, name: str, hard: dict[str, str]) -> None:
        """Create a quota, such as `{"pods": "1"}`, for the test's namespace, and wait until the
        quota is enforced.

        The quota also forbids PodTemplates, because a rejected PodTemplate shows that the quota is
        enforced.
        """
        from kubetest.accounts import wait_for_quota

        spec = {"hard": {**hard, "count/podtemplates": "0"}}
        self.raw.call(
            "POST", self.path("resourcequotas"), {"metadata": {"name": name}, "spec": spec}
        )
        wait_for_quota(self.raw, self.namespace, name)

    def wait_for_pod(self, name: str, *phases: str, seconds: float = 90) -> Object:
        """Return a Pod as soon as it is in one of `phases` or, if no phase is given, as soon as it
        is running and ready.

        The test fails if this takes longer than `seconds`.
        """
        selector = self.path(f"pods?fieldSelector=metadata.name={name}")
        pod: Object = {}
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            for event in self.raw.watch(selector, seconds=remaining):
                if event["type"] == "ERROR":
                    break  # A busy server can end a watch. The next one begins with all Pods.
                pod = event["object"]
                if _reached(pod, phases):
                    return pod
        pytest.fail(
            f"Pod {name} is not {' or '.join(phases) or 'running'} after {seconds:.0f} s: "
            f"{json.dumps(pod.get('status', 'it did not exist'), indent=1)[:3000]}"
        )

    def kubeconfig_of(self, name: str, user: Object) -> Path:
        """Write a kubeconfig with the user entry `user`, such as {"token": ...}, and return its
        path.
        """
        content = _kubeconfig(self.session.cluster.kubeconfig, self.namespace)
        content["users"] = [
            {"name": context["context"]["user"], "user": user} for context in content["contexts"]
        ]
        path = self.scratch / f"{name}.kubeconfig"
        path.write_text(json.dumps(content))
        return path


@pytest.fixture(scope="session")
def kube_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The cluster for the whole run. The run fails if the tests leave namespaces in the cluster."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                clusters.find(os.environ, tmp_path_factory.mktemp("cluster"))
            )
        except NoCluster as exc:
            _no_cluster(str(exc))
        from kubetest.rawapi import RawApi, access

        api = RawApi(access(cluster.kubeconfig))
        session = Session(cluster=cluster, api=api, namespaces=Namespaces(api, PREFIX))
        before = _namespaces(api)
        yield session
        session.namespaces.close()
        remaining = _wait_until_deleted(session, before=before)
        if remaining:
            pytest.fail(f"the tests left namespaces in the cluster: {', '.join(sorted(remaining))}")


@pytest.fixture
def kube_cluster(
    request: pytest.FixtureRequest, kube_session: Session, tmp_path: Path
) -> Iterator[KubeCluster]:
    """A Kubernetes cluster with an empty namespace for this test.

    When the test finishes, the namespace is emptied for another test, or deleted.
    """
    with temporary_namespace(kube_session, tmp_path) as kube_cluster:
        yield kube_cluster
        # A failed test can leave threads and processes that still use the namespace.
        if request.node.stash.get(_HAS_FAILED, False):
            kube_cluster.is_discarded.set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has failed."""
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


@contextmanager
def temporary_namespace(session: Session, scratch: Path) -> Iterator[KubeCluster]:
    """Yield the cluster with an empty namespace, which is emptied or deleted on exit.

    `scratch` is a directory for temporary files.
    """
    namespace = session.namespaces.take()
    is_discarded = threading.Event()
    try:
        kubeconfig = scratch / "admin.kubeconfig"
        content = _kubeconfig(session.cluster.kubeconfig, namespace)
        kubeconfig.write_text(json.dumps(content))
        with ExitStack() as stack:
            yield KubeCluster(
                session=session,
                namespace=namespace,
                kubeconfig=kubeconfig,
                scratch=scratch,
                is_discarded=is_discarded,
                _open=stack,
            )
    finally:
        session.namespaces.give_back(namespace, may_be_used_again=not is_discarded.is_set())


@pytest.fixture
def memory_cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    """A cluster that only stores objects (see memory.py), with an empty namespace. No Pod of it
    ever starts.

    A module whose tests do not depend on what a real server does can use it as `kube_cluster`.
    """
    from kubetest.memory import Pods

    with _memory_cluster(tmp_path, Pods.PENDING) as kube_cluster:
        yield kube_cluster


@pytest.fixture
def running_memory_cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    """A cluster like `memory_cluster`, in which all Pods without a node selector are reported as
    running. No program runs.
    """
    from kubetest.memory import Pods

    with _memory_cluster(tmp_path, Pods.RUNNING) as kube_cluster:
        yield kube_cluster


@pytest.fixture
def local_pods_cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    """A cluster like `memory_cluster`, in which the programs of all Pods without a node selector
    run on this machine (see local_pods.py).
    """
    from kubetest.memory import Pods

    with _memory_cluster(tmp_path, Pods.LOCAL) as kube_cluster:
        yield kube_cluster


@contextmanager
def _memory_cluster(scratch: Path, pods: Pods) -> Iterator[KubeCluster]:
    from kubetest.memory import NAMESPACES, MemoryServer
    from kubetest.rawapi import RawApi, access

    namespace = f"{PREFIX}memory"
    with MemoryServer(pods=pods) as server, ExitStack() as stack:
        kubeconfig = server.write_kubeconfig(scratch / "admin.kubeconfig", namespace)
        api = RawApi(access(kubeconfig))
        api.call("POST", NAMESPACES, {"metadata": {"name": namespace}})
        cluster = Cluster(
            kind="memory", kubeconfig=kubeconfig, image="none:1", disposable=True, users={}
        )
        yield KubeCluster(
            session=Session(cluster=cluster, api=api, namespaces=Namespaces(api, PREFIX)),
            namespace=namespace,
            kubeconfig=kubeconfig,
            scratch=scratch,
            is_discarded=threading.Event(),
            _open=stack,
        )


@pytest.fixture
def kube_faults(kube_cluster: KubeCluster) -> Iterator[FaultProxy]:
    """A proxy that receives the requests to the API server, and can delay, drop, reset or answer
    them.

    The proxy's `kubeconfig` has administrator permissions.
    """
    from kubetest.faults import FaultProxy

    with FaultProxy(kube_cluster.kubeconfig, scratch=kube_cluster.scratch) as proxy:
        yield proxy


@pytest.fixture
def hollow_nodes(kube_session: Session) -> Iterator[HollowNodes]:
    """Simulated nodes, on which Pods run without containers (see hollow.py).

    On clusters other than the devcluster, the test is skipped.
    """
    from kubetest.hollow import HollowNodes

    kwok = kube_session.cluster.kwok
    if kwok is None:
        pytest.skip("hollow nodes need kwok, which only the devcluster has")
    with HollowNodes(kube_session.cluster.kubeconfig, kwok=kwok, count=4) as nodes:
        yield nodes


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Cancel the last test's time limit before its teardown.

    This teardown waits until all namespaces of the run are deleted, and has its own time limit.
    """
    cancel = getattr(item.config.hook, "pytest_timeout_cancel_timer", None)
    if nextitem is None and cancel is not None:
        cancel(item=item)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report prominently if tests were skipped because there is no Kubernetes cluster."""
    for report in terminalreporter.getreports("skipped"):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _, _, reason = text.partition(SKIP_PREFIX)
        if reason:
            terminalreporter.section(
                "NOT TESTED AGAINST A KUBERNETES", sep="!", red=True, bold=True
            )
            terminalreporter.line(reason)
            return


def _no_cluster(reason: str) -> None:
    if os.environ.get("CI") == "true" and WITHOUT_CLUSTER not in os.environ:
        pytest.fail(f"no Kubernetes in CI: {reason}", pytrace=False)
    pytest.skip(f"{SKIP_PREFIX}{reason}")


def _kubeconfig(path: Path, namespace: str) -> Object:
    """Return the contents of a kubeconfig, with `namespace` as the default namespace and with
    absolute paths.
    """
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


def _wait_until_deleted(session: Session, *, before: set[str]) -> set[str]:
    """Wait up to 120 s for the deletion of the run's namespaces, and return those that remain.

    If other processes may use the cluster, only namespaces with `PREFIX` are considered.
    """
    alone = session.cluster.disposable and SHARED_CLUSTER not in os.environ
    deadline = time.monotonic() + 120
    pause_seconds = 0.2
    while True:
        new = _namespaces(session.api) - before
        remaining = new if alone else {name for name in new if name.startswith(PREFIX)}
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(pause_seconds)
        # Other processes of the run may still need the processor.
        pause_seconds = min(pause_seconds * 1.5, 1.0)
