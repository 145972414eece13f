"""Faults at each call of a launch, a deletion and a wait.

The operation completes, or it is reported and rolled back. Each test fails all calls in turn. Their
number is that of an direct_api run.
"""

import contextlib
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kubetest.faults import Call, Fault, FaultProxy
from kubetest.rawapi import MERGE_PATCH
from symphony.errors import BackendError, LaunchFailed, Unreachable
from symphony.status import State
from symphony_kube.api.client import Api
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.retries import Timeouts
from symphony_kube.lifecycle import delete, launch
from symphony_kube.watch import wait
from tests.backends.kube.conftest import find_namespace, managed_objects, unschedulable, wait_until

# Faults of a call. With "after", the server handles the call and its response is lost. test_api.py
# tests that the client tries again after all kinds of faults.
FAULTS = {
    "500": Fault(action="answer", status=500),
    "reset": Fault(action="reset"),
    "reset after": Fault(action="reset", after=True),
    "silence": Fault(action="drop"),
}
BEFORE_AND_AFTER = ("500", "reset after")
ENDED = {"exitCode": 0, "reason": "Completed"}
# The status of a Pod that has finished, although no node accepted it.
SUCCEEDED = {
    "status": {
        "phase": "Succeeded",
        "containerStatuses": [
            {
                "name": "worker",
                "state": {"terminated": ENDED},
                "ready": False,
                "restartCount": 0,
                "image": "",
                "imageID": "",
            }
        ],
    }
}
# If the fault is a silent server, each try must be short and there must be many tries.
TIMEOUTS_FOR_SILENCE = Timeouts(
    response=0.6,
    first_response=0.6,
    pauses=(0.02, 0.05, 0.1, 0.2, 0.4, 0.8),
    outage=5.0,
    retry_after_total=1.0,
)
TIMEOUTS = Timeouts(pauses=(0.02, 0.05, 0.1), outage=0.3, retry_after_total=1.0)


class FaultyCallProxy(FaultProxy):
    """A proxy that fails one call, by its number from 0, or all calls from there on."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._number, self._fault, self._lasting = None, None, False

    def at(self, number, fault, *, lasting=False):
        with self._lock:
            self._calls.clear()
            self._number, self._fault, self._lasting = number, fault, lasting

    def recover(self):
        self.at(None, None)

    def _next_fault(self, method, path):
        with self._lock:
            number = len(self._calls)
            hit = self._number is not None and (
                number == self._number or (self._lasting and number > self._number)
            )
            fault = self._fault if hit else None
            self._calls.append(
                Call(method=method, path=path, fault=fault.action if fault else None)
            )
            return fault


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def faulty_proxy(kube_cluster):
    with FaultyCallProxy(kube_cluster.kubeconfig, scratch=kube_cluster.scratch) as proxy:
        yield proxy


@pytest.fixture
def timeouts(request):
    """The timeouts for a test, which depend on the ``kind`` of its fault."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return TIMEOUTS_FOR_SILENCE if "silence" in given.get("kind", "") else TIMEOUTS


@pytest.fixture
def api(faulty_proxy, timeouts):
    """A client through the proxy, with one thread so that the order of calls is fixed.

    It is patient, because a call that fails once can take long on a busy machine.
    """
    patient = replace(timeouts, outage=60.0)
    with contextlib.closing(
        Api(kubeconfig=faulty_proxy.kubeconfig, connections=1, timeouts=patient)
    ) as api:
        api.call("GET", "/version")
        yield api


@pytest.fixture
def direct_api(kube_cluster):
    """A client that does not use the proxy."""
    with contextlib.closing(Api(kubeconfig=kube_cluster.kubeconfig)) as api:
        yield api


def manifest_with_secret(cluster, name, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    exp = cluster.new_experiment(name, secrets={"token": str(tmp_path / "token")})
    unschedulable(exp, "db").binds("store")
    unschedulable(exp, "worker").connects("store")
    return cluster.manifest(exp)


def launch_manifest(api, manifest):
    launch.launch(api, manifest, run_id=secrets.token_hex(6), force=False)


def delete_experiment(api, manifest):
    delete.delete(KubeExperiment(api, manifest.scope), jobs_only=False)


def expected_objects(manifest):
    """Return the objects of a complete experiment."""
    prefix = manifest.scope.object_name("x")[:-1]
    base = {body["kind"]: body["metadata"]["name"] for body in manifest.base_objects}
    return {
        "pods": [f"{prefix}db", f"{prefix}worker"],
        "services": [f"{prefix}store"],
        "secrets": [base["Secret"]],
        "configmaps": [base["ConfigMap"]],
    }


@pytest.mark.parametrize("kind", BEFORE_AND_AFTER)
def test_launch_survives_one_failed_call(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path, kind
):
    manifest = manifest_with_secret(shared, name, tmp_path)
    calls = len(list(manifest)) + 2
    for number in range(calls):
        faulty_proxy.at(number, FAULTS[kind])
        launch_manifest(api, manifest)
        assert [call.fault for call in faulty_proxy.calls()].count(FAULTS[kind].action) == 1
        assert managed_objects(kube_cluster) == expected_objects(manifest)
        delete_experiment(direct_api, manifest)


def test_launch_in_a_new_namespace_survives_one_failed_call(
    kube_cluster, faulty_proxy, api, own_namespaces, name, tmp_path
):
    calls = len(list(manifest_with_secret(own_namespaces, name, tmp_path))) + 2
    made = []
    fault = FAULTS["reset after"]
    try:
        for number in range(calls):
            manifest = manifest_with_secret(own_namespaces, f"{name}-{number}", tmp_path)
            faulty_proxy.at(number, fault)
            made.append(manifest.scope.namespace)
            launch_manifest(api, manifest)
            assert [call.fault for call in faulty_proxy.calls()].count(fault.action) == 1
            assert managed_objects(kube_cluster, made[-1]) == expected_objects(manifest)
    finally:
        for each in made:
            if find_namespace(kube_cluster, each):
                kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{each}")


CALLS = [
    ("GET", r"/pods\?", "pods|API server"),
    ("POST", "/services[?]", "service"),
    ("POST", "/secrets[?]", "secret"),
    ("POST", "/pods[?]", "pod"),
]


@pytest.mark.parametrize(("method", "path", "word"), CALLS)
@pytest.mark.parametrize("kind", BEFORE_AND_AFTER)
def test_permanent_failure_rolls_the_launch_back(
    kube_cluster, kube_faults, timeouts, shared, name, tmp_path, method, path, word, kind
):
    manifest = manifest_with_secret(shared, name, tmp_path)
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig, timeouts=timeouts)) as api:
        api.call("GET", "/version")
        fault = FAULTS[kind]
        kube_faults._add(
            Fault(
                action=fault.action,
                status=fault.status,
                after=fault.after,
                method=method,
                path=path,
            )
        )
        # If the first look fails, no object was created.
        with pytest.raises(BackendError if method == "GET" else LaunchFailed, match=word) as caught:
            launch_manifest(api, manifest)
    assert "\n" not in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert "these remain" not in str(caught.value)
    assert managed_objects(kube_cluster) == {}


def test_permanent_failure_deletes_a_new_namespace(
    kube_cluster, kube_faults, timeouts, own_namespaces, name, tmp_path
):
    manifest = manifest_with_secret(own_namespaces, name, tmp_path)
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig, timeouts=timeouts)) as api:
        api.call("GET", "/version")
        kube_faults.reset(method="POST", path="/pods[?]", after=True)
        with pytest.raises(LaunchFailed, match=r"cannot create pod 'db' in namespace"):
            launch_manifest(api, manifest)
    assert find_namespace(kube_cluster, name) is None


def test_permanent_outage_reports_remaining_objects(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path
):
    api.timeouts = TIMEOUTS
    manifest = manifest_with_secret(shared, name, tmp_path)
    for number in range(len(list(manifest)) + 2):
        faulty_proxy.at(number, FAULTS["reset after"], lasting=True)
        with pytest.raises(LaunchFailed if number else Unreachable) as caught:
            launch_manifest(api, manifest)
        message = str(caught.value)
        faulty_proxy.recover()
        found = managed_objects(kube_cluster)
        reported = re.findall(
            rf"(perhaps )?(?:pod|service|secret|config map) '({name}-[0-9a-z-]+)'",
            message.partition("these remain: ")[2],
        )
        left = {each for kind in found.values() for each in kind}
        assert {each for perhaps, each in reported if not perhaps} <= left
        # A long list of names ends with the number of the others.
        others = re.search(r" and (\d+) more \(", message)
        unnamed = left - {each for _, each in reported}
        assert len(unnamed) <= (int(others[1]) if others else 0)
        assert "\n" not in message
        delete_experiment(direct_api, manifest)
        assert managed_objects(kube_cluster) == {}


def test_delete_survives_one_failed_call(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path
):
    manifest = manifest_with_secret(shared, name, tmp_path)
    launch_manifest(direct_api, manifest)
    faulty_proxy.at(None, None)
    delete_experiment(api, manifest)
    calls = len(faulty_proxy.calls())
    assert calls > len(list(manifest))
    for number in range(calls):
        launch_manifest(direct_api, manifest)
        faulty_proxy.at(number, FAULTS["reset after"])
        delete_experiment(api, manifest)
        assert managed_objects(kube_cluster) == {}


def test_delete_of_a_namespace_survives_one_failed_call(
    kube_cluster, faulty_proxy, api, direct_api, own_namespaces, name, tmp_path
):
    # Deleting a namespace takes five seconds, so all calls are tested in one run.
    manifest = manifest_with_secret(own_namespaces, name, tmp_path)
    launch_manifest(direct_api, manifest)
    # The server removes the namespace at once, so nothing would follow a lost answer to the second.
    for method, path, after in (
        ("GET", f"/{name}$", True),
        ("DELETE", f"/{name}$", False),
        ("DELETE", "/pods[?]", True),
        ("GET", r"metadata\.name", True),
    ):
        FaultProxy.reset(faulty_proxy, method=method, path=path, times=1, after=after)
    faulty_proxy._next_fault = FaultProxy._next_fault.__get__(faulty_proxy)
    delete_experiment(api, manifest)
    assert [call.fault for call in faulty_proxy.calls()].count("reset") == 4
    assert find_namespace(kube_cluster, name) is None


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", ["500", "reset", "silence"])
def test_wait_survives_one_failed_call(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, monkeypatch, kind, number
):
    """A wait makes two calls: a list, and a watch, in which a silent loss is noticed at its end."""
    monkeypatch.setattr("symphony_kube.watch.informer.WATCH_SECONDS", 1)
    monkeypatch.setattr("symphony_kube.watch.informer.WATCH_END_TOLERANCE_SECONDS", 0.5)
    exp = shared.new_experiment(name)
    unschedulable(exp, "worker")
    manifest = shared.manifest(exp)
    launch_manifest(direct_api, manifest)
    faulty_proxy.at(number, FAULTS[kind])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            wait.wait, KubeExperiment(api, manifest.scope), timeout=60, on_change=None
        )
        wait_until(
            lambda: [call.fault for call in faulty_proxy.calls()].count(FAULTS[kind].action) == 1
        )
        kube_cluster.raw.call(
            "PATCH", kube_cluster.path(f"pods/{name}-worker/status"), SUCCEEDED, MERGE_PATCH
        )
        assert [(item.name, item.state) for item in waiting.result(timeout=60)] == [
            ("worker", State.SUCCEEDED)
        ]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/services"), ("GET", "/jobs"), ("DELETE", "/pods/"), ("DELETE", "/secrets/")],
)
def test_failed_deletion_can_be_repeated(
    kube_cluster, kube_faults, timeouts, direct_api, shared, name, tmp_path, method, path
):
    manifest = manifest_with_secret(shared, name, tmp_path)
    launch_manifest(direct_api, manifest)
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig, timeouts=timeouts)) as api:
        api.call("GET", "/version")
        kube_faults.answer(500, method=method, path=path)
        with pytest.raises(BackendError) as caught:
            delete_experiment(api, manifest)
        assert "\n" not in str(caught.value)
        kube_faults.clear()
        delete_experiment(api, manifest)
    wait_until(lambda: managed_objects(kube_cluster) == {})
