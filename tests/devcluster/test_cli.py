import json
import os
from types import SimpleNamespace

import pytest

from devcluster import access, cli, control, objects, record, report
from devcluster.console import Console
from devcluster.node import NODES
from devcluster.processes import Process
from devcluster.sandbox import Machine


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "symphony/devcluster"


@pytest.fixture
def as_root(monkeypatch):
    """Be taken for root, whom alone the tool lets in."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0
    assert "export KUBECONFIG=$(devcluster kubeconfig)" in said
    assert "exit codes" in said


@pytest.mark.parametrize(
    "argv", [[], ["fly"], ["logs", "-n", "none"], ["logs", "-n", "0"], ["kubeconfig", "bob"]]
)
def test_wrong_use_is_2(argv, state):
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2


def test_what_needs_a_cluster_says_so_in_one_line(state, capsys):
    assert cli.main(["kubeconfig"]) == 2
    assert (
        capsys.readouterr().err == "devcluster: the cluster is not up: run 'devcluster up' first\n"
    )
    assert cli.main(["logs", "etcd"]) == 2
    assert "no log 'etcd': there are none yet" in capsys.readouterr().err


def test_a_wheel_that_is_not_there_is_refused(state, capsys):
    assert cli.main(["up", "--wheel", "/no/such.whl"]) == 2
    assert "no file /no/such.whl" in capsys.readouterr().err
    assert not state.exists()


def test_others_than_root_are_refused_and_nothing_is_made(state, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for command in ("up", "down", "images", "status"):
        assert cli.main([command]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not state.exists()


def test_status_without_a_cluster(state, capsys, as_root):
    assert cli.main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"up": False}


def test_a_damaged_record_is_refused_with_the_remedy(state, capsys, as_root):
    state.mkdir(parents=True)
    (state / "cluster.json").write_text('{"machines": [')
    assert cli.main(["status"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_the_end_of_a_log_is_printed(state, capsys):
    (state / "logs").mkdir(parents=True)
    (state / "logs/etcd.log").write_text("one\ntwo\nthree\n")
    assert cli.main(["logs"]) == 0
    assert cli.main(["logs", "etcd", "-n", "2"]) == 0
    assert capsys.readouterr().out == "etcd\ntwo\nthree\n"


def test_a_record_comes_back_as_it_was_written(tmp_path, monkeypatch):
    from devcluster.paths import Paths

    paths = Paths(cache=tmp_path, state=tmp_path)
    assert record.load(paths) is None
    noted = record.Record(path=paths.record)
    init = Process(name="node1", pid=5, start=6)
    noted.add_machine(Machine(name="node1", init=init, address="10.243.0.11"))
    noted.add_daemon(Process(name="etcd", pid=7, start=8))
    noted.finish(image="i", timings={"nodes": 1.5})
    read = record.load(paths)
    assert (read.machines, read.daemons) == (noted.machines, noted.daemons)
    assert (read.image, read.complete, read.timings) == ("i", True, {"nodes": 1.5})
    assert read.machine("node1").address == "10.243.0.11"


def test_tokens_are_fresh_and_every_node_has_one():
    names = [node.name for node in NODES]
    first, second = access.make_tokens(names), access.make_tokens(names)
    assert not set(first.values()) & set(second.values())
    lines = access.token_file(first).splitlines()
    assert f'{first["admin"]},admin,admin,"system:masters"' in lines
    assert (
        f'{first["system:node:node1"]},system:node:node1,system:node:node1,"system:nodes"' in lines
    )
    assert f'{first["stranger"]},stranger,stranger,""' in lines


def test_a_kubeconfig_names_server_user_and_namespace():
    content = json.loads(
        access.kubeconfig(server=control.SERVER, authority=b"c", user="researcher", token="t")
    )
    assert content["clusters"][0]["cluster"]["server"] == "https://10.243.0.2:6443"
    assert content["contexts"][0]["context"]["namespace"] == "team-a"


def test_a_researcher_gets_nothing_but_jobs_and_reading_pods():
    rights = {
        resource: set(rule["verbs"])
        for rule in objects.researcher_rules()
        for resource in rule["resources"]
    }
    assert set(rights) == {"jobs", "pods", "pods/log"}
    assert rights["pods"] == rights["pods/log"] == {"get", "list", "watch"}


def test_steps_are_timed_and_told(capsys, monkeypatch):
    clock = iter([100.0, 102.504])
    monkeypatch.setattr("devcluster.console.time", SimpleNamespace(monotonic=lambda: next(clock)))
    console = Console()
    with console.step("nodes", "slow"):
        pass
    assert console.timings == {"nodes": 2.5}
    assert capsys.readouterr().err.splitlines() == ["nodes (slow) ...", "nodes: 2.5 s"]


def test_a_node_that_says_nothing_of_itself_is_no_trouble():
    assert report.node_summary({"metadata": {"name": "n"}}) == {
        "name": "n",
        "ready": False,
        "address": "-",
        "labels": {},
        "taints": [],
        "gpus": 0,
    }


def test_status_says_what_has_ended():
    ended = [{"name": "etcd", "pid": 1, "alive": False}, {"name": "dns", "pid": 2, "alive": True}]
    assert report.text({"up": False, "processes": ended}).startswith(
        "the cluster is broken (etcd ended)"
    )
    assert report.text({"up": False}) == "the cluster is not up"
