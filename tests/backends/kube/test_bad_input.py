"""Mistakes of users are reported in one line, and nothing is created."""

import json
import re

import pytest

from symphony import Cluster
from symphony.commandline.exit_codes import BACKEND_ERROR, USAGE_ERROR, exit_code
from symphony.errors import (
    BackendError,
    LaunchFailed,
    NotFound,
    SpecError,
    Unreachable,
)
from symphony_kube.api.retries import Timeouts

from .conftest import managed_objects, unschedulable


def verbs(cluster, name):
    """Return each operation that uses the cluster, as a function without arguments."""
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker")
    return {
        "launch": lambda: cluster.launch(exp),
        "check": lambda: cluster.launch(exp, dry_run="server"),
        "delete": lambda: cluster.delete(name),
        "list": lambda: cluster.list_experiments(),
        "describe": lambda: cluster.describe_experiment(name),
        "wait": lambda: cluster.wait(name),
    }


def check_each_verb(cluster, name, kind, match, pauses):
    """Check that each operation fails with one line and without a retry."""
    for verb in verbs(cluster, name).values():
        pauses.clear()
        with pytest.raises(kind, match=match) as caught:
            verb()
        assert pauses == []
        assert "\n" not in str(caught.value)


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


def test_every_verb_reports_a_missing_kubeconfig(tmp_path, name, pauses):
    cluster = Cluster.new("kube", kubeconfig=str(tmp_path / "none"), image="i", namespace="n")
    check_each_verb(cluster, name, BackendError, "no kubeconfig: there is no file", pauses)


@pytest.mark.parametrize(
    "server", ["nonsense", "localhost:8080", "ftp://x", "https://", "https://x:port", "https://[x"]
)
def test_invalid_server_address_is_reported(
    kube_cluster, open_cluster, tmp_path, server, recwarn, capfd
):
    cluster = open_cluster(kubeconfig=str(kubeconfig(kube_cluster, tmp_path, server=server)))
    message = f"has the server '{re.escape(server)}' for the cluster .*; write https://HOST:PORT"
    with pytest.raises(BackendError, match=message) as caught:
        cluster.list_experiments()
    assert "\n" not in str(caught.value)
    assert not recwarn
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("status", "where"), [(401, "/pods"), (429, "/services"), (500, "/pods"), (503, "/services")]
)
def test_server_errors_have_the_exit_code_of_the_backend(
    kube_cluster, kube_faults, open_cluster, name, status, where, monkeypatch
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    monkeypatch.setattr(cluster.api, "timeouts", Timeouts(pauses=()))
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    kube_faults.answer(status, path=where)
    verbs = [cluster.launch, lambda exp: cluster.launch(exp, dry_run="server")]
    for verb in verbs:
        with pytest.raises(BackendError) as caught:
            verb(exp)
        assert exit_code(caught.value) == BACKEND_ERROR, caught.value
    kube_faults.clear()
    kube_faults.answer(403, method="POST", path=where)
    for verb in verbs:
        with pytest.raises(LaunchFailed) as caught:
            verb(exp)
        assert exit_code(caught.value) == USAGE_ERROR
    kube_faults.clear()
    assert managed_objects(kube_cluster) == {}


def test_lost_server_has_the_exit_code_of_the_backend(
    kube_cluster, kube_faults, open_cluster, name
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    cluster.api.timeouts = Timeouts(pauses=())
    exp = cluster.new_experiment(name)
    unschedulable(exp, "worker").binds("web")
    kube_faults.reset(method="POST", path="/namespaces/")
    with pytest.raises(LaunchFailed) as caught:
        cluster.launch(exp)
    assert exit_code(caught.value) == BACKEND_ERROR
    kube_faults.clear()


def kubeconfig(kube, tmp_path, **cluster):
    """Write a copy of the kubeconfig of the test without the certificate of the server."""
    content = json.loads(kube.kubeconfig.read_text())
    given = content["clusters"][0]["cluster"]
    for key in ("certificate-authority", "certificate-authority-data"):
        given.pop(key, None)
    given.update(cluster)
    path = tmp_path / "other"
    path.write_text(json.dumps(content))
    return path


def test_spec_errors_are_found_before_any_request(kube_cluster, kube_faults, name):
    options = {"kubeconfig": str(kube_faults.kubeconfig), "namespace": kube_cluster.namespace}
    bare = Cluster.new("kube", **options)
    exp = bare.new_experiment(name)
    exp.new_process("worker", command="true")
    with pytest.raises(SpecError, match="worker.*image"):
        bare.launch(exp)
    long = bare.new_experiment("e" * 50)
    long.new_process("worker-of-a-long-name", command="true", container_image="i")
    with pytest.raises(SpecError, match="72 characters, and Kubernetes allows 63"):
        bare.launch(long)
    assert kube_faults.count() == 0


def test_kubeconfig_is_not_written(kube_cluster, shared, name):
    path = kube_cluster.kubeconfig
    path.chmod(0o400)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    exp = shared.new_experiment(name)
    unschedulable(exp, "worker")
    shared.launch(exp)
    shared.describe_experiment(name)
    shared.delete(name)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_nothing_is_printed_if_the_server_is_unreachable(kube_cluster, kube_faults, name, capfd):
    options = {
        "kubeconfig": str(kube_faults.kubeconfig),
        "namespace": kube_cluster.namespace,
        "image": "i",
    }
    kube_faults.reset()
    with pytest.raises(Unreachable):
        Cluster.new("kube", **options).list_experiments()
    assert capfd.readouterr() == ("", "")


def test_unknown_experiment_of_an_empty_cluster_names_the_server(kube_cluster, shared, name):
    place = f"in namespace {kube_cluster.namespace} of the API server http"
    with pytest.raises(NotFound, match=f"no experiment '{name}'; there are no experiments {place}"):
        shared.describe_experiment(name)
