"""What users get wrong: one line each, and nothing is left behind."""

import json
import re
import socket

import pytest

from symphony import Cluster
from symphony.commandline.exit_codes import BACKEND_ERROR, USAGE_ERROR, exit_code
from symphony.errors import (
    BackendError,
    LaunchFailed,
    NotFound,
    SpecError,
    SymphonyError,
    Unreachable,
)
from symphony_kube.api.retries import Timeouts

from .conftest import there, unplaced

pytestmark = pytest.mark.client


def verbs(cluster, name):
    """Each way to the cluster, as a function without arguments."""
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker")
    return {
        "launch": lambda: cluster.launch(exp),
        "check": lambda: cluster.launch(exp, dry_run="server"),
        "delete": lambda: cluster.delete(name),
        "list": lambda: cluster.list_experiments(),
        "describe": lambda: cluster.describe_experiment(name),
        "wait": lambda: cluster.wait(name),
    }


def told(cluster, name, kind, match, pauses, *, waiting=0.0, only=None):
    """Every verb (or only some) ends with one line, after so many seconds of waiting at most."""
    for verb in (
        function for word, function in verbs(cluster, name).items() if only is None or word in only
    ):
        pauses.clear()
        with pytest.raises(kind, match=match) as caught:
            verb()
        assert sum(pauses) <= waiting
        assert "\n" not in str(caught.value)


def test_without_a_kubeconfig(tmp_path, name, pauses):
    cluster = Cluster.new("kube", kubeconfig=str(tmp_path / "none"), image="i", namespace="n")
    told(cluster, name, BackendError, "no kubeconfig: there is no file", pauses)


def test_with_a_kubeconfig_that_is_none(tmp_path, name, pauses):
    (tmp_path / "k").write_text("root:x:0:0\n")
    told(
        Cluster.new("kube", kubeconfig=str(tmp_path / "k"), image="i"),
        name,
        BackendError,
        "is not a kubeconfig",
        pauses,
    )


def test_with_a_context_that_is_not_there(kube_cluster, open_cluster, name, pauses):
    told(open_cluster(context="nowhere"), name, NotFound, "has no context 'nowhere'", pauses)


def test_with_a_server_that_is_not_running(kube_cluster, open_cluster, tmp_path, name, pauses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        path = kubeconfig(
            kube_cluster, tmp_path, server=f"https://127.0.0.1:{taken.getsockname()[1]}"
        )
        cluster = open_cluster(kubeconfig=str(path))
        told(
            cluster,
            name,
            Unreachable,
            "cannot be reached: .*refused",
            pauses,
            waiting=2.0,
            only=("launch", "describe"),
        )


def test_with_a_server_that_is_not_trusted(kube_cluster, open_cluster, tmp_path, name, pauses):
    path = kubeconfig(kube_cluster, tmp_path)
    told(
        open_cluster(kubeconfig=str(path)),
        name,
        SymphonyError,
        "certificate that is not trusted",
        pauses,
    )


def test_with_a_token_that_has_expired(kube_cluster, open_cluster, name, pauses):
    path = kube_cluster.kubeconfig_of("nobody", {"token": "nonsense"})
    told(
        open_cluster(kubeconfig=str(path)),
        name,
        BackendError,
        "does not accept these credentials.*log in again",
        pauses,
    )


@pytest.mark.parametrize(
    "server", ["nonsense", "localhost:8080", "ftp://x", "https://", "https://x:port", "https://[x"]
)
def test_with_a_server_that_is_no_address(
    kube_cluster, open_cluster, tmp_path, name, server, pauses, recwarn, capfd
):
    path = kubeconfig(kube_cluster, tmp_path, server=server)
    said = f"has the server '{re.escape(server)}' for the cluster .*; write https://HOST:PORT"
    told(open_cluster(kubeconfig=str(path)), name, BackendError, said, pauses)
    assert not recwarn
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("status", "where"), [(401, "/pods"), (429, "/services"), (500, "/pods"), (503, "/services")]
)
def test_trouble_with_the_server_is_not_the_users_mistake(
    kube_cluster, kube_faults, open_cluster, name, status, where, monkeypatch
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    monkeypatch.setattr(cluster.api, "timeouts", Timeouts(pauses=()))
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker").binds("web")
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
    assert there(kube_cluster) == {}


def test_a_server_that_goes_away_in_a_launch_is_not_the_users_mistake(
    kube_cluster, kube_faults, open_cluster, name
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    cluster.api.timeouts = Timeouts(pauses=())
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker").binds("web")
    kube_faults.reset(method="POST")
    with pytest.raises(LaunchFailed) as caught:
        cluster.launch(exp)
    assert exit_code(caught.value) == BACKEND_ERROR
    kube_faults.clear()


def kubeconfig(kube, tmp_path, **cluster):
    """The test's kubeconfig, without the certificate of the server."""
    content = json.loads(kube.kubeconfig.read_text())
    given = content["clusters"][0]["cluster"]
    for key in ("certificate-authority", "certificate-authority-data"):
        given.pop(key, None)
    given.update(cluster)
    path = tmp_path / "other"
    path.write_text(json.dumps(content))
    return path


def test_no_image_and_a_name_that_is_too_long_are_found_before_anything_is_asked(
    kube_cluster, kube_faults, name
):
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


def test_a_namespace_that_is_terminating_is_told(kube_cluster, shared, name):
    held = {"metadata": {"name": "held", "finalizers": ["symphony.test/held"]}}
    maps = kube_cluster.path("configmaps")
    kube_cluster.raw.call("POST", maps, held)
    try:
        kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{kube_cluster.namespace}")
        exp = shared.new_experiment(name)
        unplaced(exp, "worker").binds("web")
        with pytest.raises(
            LaunchFailed, match="because it is being terminated; wait until it is gone, or choose"
        ):
            shared.launch(exp)
        assert there(kube_cluster) == {}
    finally:
        free = {"metadata": {"finalizers": None}}
        kube_cluster.raw.call("PATCH", f"{maps}/held", free, "application/merge-patch+json")


def test_the_kubeconfig_is_only_read(kube_cluster, shared, name):
    path = kube_cluster.kubeconfig
    path.chmod(0o400)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    exp = shared.new_experiment(name)
    unplaced(exp, "worker")
    shared.launch(exp)
    shared.describe_experiment(name)
    shared.delete(name)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_nothing_is_printed_when_the_server_is_away(kube_cluster, kube_faults, name, capfd):
    options = {
        "kubeconfig": str(kube_faults.kubeconfig),
        "namespace": kube_cluster.namespace,
        "image": "i",
    }
    kube_faults.reset()
    with pytest.raises(Unreachable):
        Cluster.new("kube", **options).list_experiments()
    assert capfd.readouterr() == ("", "")
