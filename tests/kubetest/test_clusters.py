"""Which cluster is taken, with stand-ins for kind and docker that write down their arguments."""

import os
import subprocess
import sys

import pytest

from kubetest import clusters
from kubetest.clusters import NoCluster

STATUS = {
    "up": True,
    "kubeconfigs": {"admin": "/k/admin", "stranger": "/k/stranger"},
    "image": "i:1",
    "docker": "/d",
    "kubectl": "/k",
    "docker_host": "unix:///s",
    "registry": "127.0.0.1:5000",
}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A PATH with a kind and a docker that only write down their arguments; what they wrote."""
    tools, log = tmp_path / "bin", tmp_path / "calls"
    tools.mkdir()
    log.touch()
    for name in ("kind", "docker"):
        tool = tools / name
        tool.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {log}\ntest ! -e {tmp_path}/{name}-fails-at-$1\n'
        )
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/bin")
    return log.read_text


@pytest.fixture
def without_kind(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_ones_own_cluster_comes_first(tmp_path, calls):
    config = tmp_path / "config"
    config.touch()
    environ = {"SYMPHONY_TEST_KUBECONFIG": str(config), "SYMPHONY_TEST_IMAGE": "mine:1"}
    with clusters.find(environ, tmp_path) as cluster:
        assert (cluster.kind, cluster.kubeconfig, cluster.image) == ("own", config, "mine:1")
        assert not cluster.disposable
    assert calls() == ""


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SYMPHONY_TEST_KUBECONFIG": "/no/such"}, "which is no file"),
        ({"SYMPHONY_TEST_KUBECONFIG": __file__}, "SYMPHONY_TEST_IMAGE is not"),
    ],
)
def test_ones_own_cluster_must_be_named_in_full(environ, said, tmp_path):
    with pytest.raises(NoCluster, match=said), clusters.find(environ, tmp_path):
        pass


def test_kind_makes_a_cluster_with_the_image_and_it_goes_again(tmp_path, calls):
    environ = {"PATH": os.environ["PATH"], "SYMPHONY_TEST_KIND_NODE": "kindest/node:v1.2.3"}
    with clusters.find(environ, tmp_path) as cluster:
        assert (cluster.kind, cluster.image, cluster.disposable) == (
            "kind",
            "symphony-test:kind",
            True,
        )
        made = calls()
    order = ["docker info", "docker build", "docker save", "kind create cluster", "kind load"]
    assert [line.startswith(start) for line, start in zip(made.splitlines(), order, strict=True)]
    create = next(line for line in made.splitlines() if "create" in line)
    assert "--image=kindest/node:v1.2.3" in create
    assert f"--kubeconfig={tmp_path}/kind.kubeconfig" in create
    name = create.split("--name ")[1].split()[0]
    assert calls().splitlines()[-1].startswith(f"kind delete cluster --name {name} ")


def test_a_kind_cluster_that_fails_is_taken_away(tmp_path, calls):
    (tmp_path / "kind-fails-at-load").touch()
    environ = {"PATH": os.environ["PATH"]}
    with (
        pytest.raises(NoCluster, match="kind load image-archive"),
        clusters.find(environ, tmp_path),
    ):
        pass
    assert "kind delete cluster" in calls().splitlines()[-1]


def test_kind_without_a_running_engine_is_passed_over(tmp_path, calls):
    (tmp_path / "docker-fails-at-info").touch()
    assert clusters.kind_engine() is None


def test_the_devcluster_comes_last(tmp_path, without_kind, monkeypatch):
    monkeypatch.setattr(clusters, "_devcluster_status", lambda: STATUS)
    with clusters.find({}, tmp_path) as cluster:
        assert (cluster.kind, cluster.image) == ("devcluster", "i:1")
        assert str(cluster.users["stranger"]) == "/k/stranger"
        assert cluster.engine.registry == "127.0.0.1:5000"


def test_no_cluster_at_all_names_all_three_ways(tmp_path, without_kind, monkeypatch):
    monkeypatch.setattr(clusters, "_devcluster_status", lambda: {"up": False})
    with pytest.raises(NoCluster) as caught, clusters.find({}, tmp_path):
        pass
    for way in ("SYMPHONY_TEST_KUBECONFIG", "kind", "scripts/devcluster up"):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    ("given", "code", "outcome"),
    [
        ({"CI": "true"}, 1, "1 error"),
        ({"CI": ""}, 0, "1 skipped"),
        ({"CI": "true", "SYMPHONY_TEST_WITHOUT_CLUSTER": "1"}, 0, "1 skipped"),
    ],
)
def test_without_a_cluster_ci_fails_and_others_skip_loudly(given, code, outcome, tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kubetest.plugin"]\n')
    (tmp_path / "test_it.py").write_text("def test_it(kube_cluster):\n    pass\n")
    environ = {
        **{
            key: value
            for key, value in os.environ.items()
            if key != "SYMPHONY_TEST_WITHOUT_CLUSTER"
        },
        **given,
        "SYMPHONY_TEST_KUBECONFIG": "/no/such",
        "PYTHONPATH": str(clusters.PROJECT / "tools"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.returncode == code, done.stdout
    assert outcome in done.stdout
    assert "/no/such, which is no file" in done.stdout
    assert ("NOT TESTED AGAINST A KUBERNETES" in done.stdout) is (code == 0)


def test_a_devcluster_that_cannot_be_asked_is_not_taken_for_none(
    tmp_path, without_kind, monkeypatch
):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/devcluster").write_text("raise SystemExit('devcluster: only root can')")
    monkeypatch.setattr(clusters, "PROJECT", tmp_path)
    with pytest.raises(NoCluster, match="cannot be asked: devcluster: only root can"):
        with clusters.find({}, tmp_path):
            pass
