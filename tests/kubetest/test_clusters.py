"""The choice of the test cluster, with fake kind and docker programs that log their arguments."""

import os

import pytest

from kubetest import clusters, own_cluster
from kubetest.clusters import NoCluster

pytest_plugins = ["pytester"]

STATUS = {
    "up": True,
    "kubeconfigs": {"admin": "/k/admin", "stranger": "/k/stranger"},
    "image": "i:1",
    "docker": "/d",
    "kubectl": "/k",
    "kwok": "/w",
    "docker_host": "unix:///s",
    "registry": "127.0.0.1:5000",
}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Put a kind and a docker that only log their arguments on the PATH.

    Return a function that reads the log.
    """
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


def test_users_own_cluster_is_preferred(tmp_path, calls):
    config = tmp_path / "config"
    config.touch()
    environ = {"SYMPHONY_TEST_KUBECONFIG": str(config), "SYMPHONY_TEST_IMAGE": "mine:1"}
    with clusters.find(environ, tmp_path) as cluster:
        assert (cluster.kind, cluster.kubeconfig, cluster.image) == ("own", config, "mine:1")
        assert not cluster.disposable
    assert calls() == ""


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SYMPHONY_TEST_KUBECONFIG": "/no/such"}, "which is not a file"),
        ({"SYMPHONY_TEST_KUBECONFIG": __file__}, "SYMPHONY_TEST_IMAGE is not"),
    ],
)
def test_users_own_cluster_needs_kubeconfig_and_image(environ, message, tmp_path):
    with pytest.raises(NoCluster, match=message), clusters.find(environ, tmp_path):
        pass


def test_kind_cluster_is_created_with_the_image_and_deleted(tmp_path, calls):
    environ = {"PATH": os.environ["PATH"], "SYMPHONY_TEST_KIND_NODE": "kindest/node:v1.2.3"}
    with clusters.find(environ, tmp_path) as cluster:
        assert (cluster.kind, cluster.image, cluster.disposable) == (
            "kind",
            "symphony-test:kind",
            True,
        )
        creation = calls()
    order = ["docker info", "kind create cluster", "docker build", "docker save", "kind load"]
    lines = creation.splitlines()
    assert all(line.startswith(start) for line, start in zip(lines, order, strict=True)), lines
    create = lines[order.index("kind create cluster")]
    assert "--image=kindest/node:v1.2.3" in create
    assert f"--kubeconfig={tmp_path}/kind.kubeconfig" in create
    name = create.split("--name ")[1].split()[0]
    assert calls().splitlines()[-1].startswith(f"kind delete cluster --name {name} ")


def test_image_is_loaded_into_the_kind_cluster_of_a_kubeconfig(tmp_path, calls):
    config = tmp_path / "config"
    config.write_text("current-context: kind-dev")
    assert own_cluster.loaded_image(config) == "symphony-test:kind"
    last = calls().splitlines()[-1]
    assert last.startswith("kind load image-archive ")
    assert last.endswith(" --name dev")


def test_other_clusters_need_an_image(tmp_path, calls):
    config = tmp_path / "config"
    config.write_text("current-context: prod")
    with pytest.raises(NoCluster, match="'prod' is not one of kind.*SYMPHONY_TEST_IMAGE"):
        own_cluster.loaded_image(config)
    assert calls() == "docker info\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no kubeconfig"),
        ("text", "is not a usable kubeconfig"),
        ("{clusters: [], contexts: [], users: []}", "is not a usable kubeconfig"),
    ],
)
def test_unusable_kubeconfig_is_reported(tmp_path, content, message):
    config = tmp_path / "config"
    if content is not None:
        config.write_text(content)
    with pytest.raises(NoCluster, match=message):
        own_cluster.server_of(config)


def test_failed_kind_cluster_is_deleted(tmp_path, calls):
    (tmp_path / "kind-fails-at-load").touch()
    environ = {"PATH": os.environ["PATH"]}
    with (
        pytest.raises(NoCluster, match="kind load image-archive"),
        clusters.find(environ, tmp_path),
    ):
        pass
    assert "kind delete cluster" in calls().splitlines()[-1]


def test_kind_without_a_running_engine_is_ignored(tmp_path, calls):
    (tmp_path / "docker-fails-at-info").touch()
    assert clusters.kind_engine() is None


def test_devcluster_is_the_last_choice(tmp_path, without_kind, monkeypatch):
    monkeypatch.setattr(clusters, "_devcluster_status", lambda: STATUS)
    with clusters.find({}, tmp_path) as cluster:
        assert (cluster.kind, cluster.image) == ("devcluster", "i:1")
        assert str(cluster.users["stranger"]) == "/k/stranger"
        assert cluster.engine.registry == "127.0.0.1:5000"


def test_error_without_a_cluster_names_all_three_choices(tmp_path, without_kind, monkeypatch):
    monkeypatch.setattr(clusters, "_devcluster_status", lambda: {"up": False})
    with pytest.raises(NoCluster) as caught, clusters.find({}, tmp_path):
        pass
    for choice in ("SYMPHONY_TEST_KUBECONFIG", "kind", "scripts/devcluster up"):
        assert choice in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ({"CI": "true"}, "errors"),
        ({"CI": ""}, "skipped"),
        ({"CI": "true", "SYMPHONY_TEST_WITHOUT_CLUSTER": "1"}, "skipped"),
    ],
)
def test_missing_cluster_fails_in_ci_and_is_reported_elsewhere(
    variables, outcome, pytester, monkeypatch
):
    monkeypatch.delenv("SYMPHONY_TEST_WITHOUT_CLUSTER", raising=False)
    monkeypatch.setenv("SYMPHONY_TEST_KUBECONFIG", "/no/such")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile("def test_it(kube_cluster):\n    pass\n")
    result = pytester.runpytest_inprocess("-p", "kubetest.plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(**{outcome: 1})
    output = result.stdout.str()
    assert "/no/such, which is not a file" in output
    assert ("NOT TESTED AGAINST A KUBERNETES" in output) is (outcome == "skipped")


def test_unavailable_devcluster_status_is_an_error(tmp_path, without_kind, monkeypatch):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/devcluster").write_text("raise SystemExit('devcluster: only root can')")
    monkeypatch.setattr(clusters, "PROJECT", tmp_path)
    with pytest.raises(NoCluster, match="unavailable: devcluster: only root can"):
        with clusters.find({}, tmp_path):
            pass
