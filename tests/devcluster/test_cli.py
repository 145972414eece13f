import json
import os
from types import SimpleNamespace

import pytest

from devcluster import access, cli, control, network, objects, report
from devcluster.node import NODES
from machines import record
from machines.console import Console
from machines.processes import Process
from machines.sandbox import Machine


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "symphony/devcluster"


@pytest.fixture
def as_root(monkeypatch):
    """Make the tool believe that root runs it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    output = capsys.readouterr().out
    assert caught.value.code == 0
    assert "export KUBECONFIG=$(devcluster kubeconfig)" in output
    assert "exit codes" in output


@pytest.mark.parametrize(
    "argv", [[], ["fly"], ["logs", "-n", "none"], ["logs", "-n", "0"], ["kubeconfig", "bob"]]
)
def test_wrong_usage_exits_with_2(argv, state):
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2


def test_error_without_a_cluster_is_one_line(state, capsys):
    assert cli.main(["kubeconfig"]) == 2
    assert (
        capsys.readouterr().err == "devcluster: the cluster is not up: run 'devcluster up' first\n"
    )
    assert cli.main(["logs", "etcd"]) == 2
    assert "no log 'etcd': the logs are: none yet" in capsys.readouterr().err


def test_missing_wheel_is_rejected(state, capsys):
    assert cli.main(["up", "--wheel", "/no/such.whl"]) == 2
    assert "/no/such.whl is not a file" in capsys.readouterr().err
    assert not state.exists()


def test_commands_require_root_and_create_nothing_without(state, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for command in ("up", "down", "images", "status"):
        assert cli.main([command]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not state.exists()


def test_status_without_a_cluster(state, capsys, as_root):
    assert cli.main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"up": False}


def test_damaged_record_is_rejected(state, capsys, as_root):
    state.mkdir(parents=True)
    (state / "cluster.json").write_text('{"machines": [')
    assert cli.main(["status"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_logs_prints_last_lines_or_names(state, capsys):
    (state / "logs").mkdir(parents=True)
    (state / "logs/etcd.log").write_text("one\ntwo\nthree\n")
    assert cli.main(["logs"]) == 0
    assert cli.main(["logs", "etcd", "-n", "2"]) == 0
    assert capsys.readouterr().out == "etcd\ntwo\nthree\n"


def test_record_round_trip(tmp_path, monkeypatch):
    from devcluster.paths import Paths

    paths = Paths(cache=tmp_path, state=tmp_path)
    assert record.load(paths.record) is None
    started = record.Record(path=paths.record)
    init = Process(name="node1", pid=5, start=6)
    started.add_machine(Machine(name="node1", init=init, address="10.243.0.11"))
    started.add_daemon(Process(name="etcd", pid=7, start=8))
    started.finish(image="i", timings={"nodes": 1.5})
    read = record.load(paths.record)
    assert (read.machines, read.daemons) == (started.machines, started.daemons)
    assert (read.image, read.complete, read.timings) == ("i", True, {"nodes": 1.5})
    assert read.machine("node1").address == "10.243.0.11"


def test_tokens_are_random_and_every_node_has_one():
    names = [node.name for node in NODES]
    first, second = access.make_tokens(names), access.make_tokens(names)
    assert not set(first.values()) & set(second.values())
    lines = access.token_file(first).splitlines()
    assert f'{first["admin"]},admin,admin,"system:masters"' in lines
    assert (
        f'{first["system:node:node1"]},system:node:node1,system:node:node1,"system:nodes"' in lines
    )
    assert f'{first["stranger"]},stranger,stranger,""' in lines


def test_kubeconfig_has_server_and_namespace():
    server = control.server_url(network.IPV4)
    content = json.loads(
        access.kubeconfig(server=server, authority=b"c", user="researcher", token="t")
    )
    assert content["clusters"][0]["cluster"]["server"] == "https://10.243.0.2:6443"
    assert content["contexts"][0]["context"]["namespace"] == "team-a"


def test_researcher_can_only_manage_jobs_and_read_pods():
    rights = {
        resource: set(rule["verbs"])
        for rule in objects.researcher_rules()
        for resource in rule["resources"]
    }
    assert set(rights) == {"jobs", "pods", "pods/log"}
    assert rights["pods"] == rights["pods/log"] == {"get", "list", "watch"}


def test_steps_are_timed_and_printed(capsys, monkeypatch):
    clock = iter([100.0, 102.504])
    monkeypatch.setattr("machines.console.time", SimpleNamespace(monotonic=lambda: next(clock)))
    console = Console()
    with console.step("nodes", "slow"):
        pass
    assert console.timings == {"nodes": 2.5}
    assert capsys.readouterr().err.splitlines() == ["nodes (slow) ...", "nodes: 2.5 s"]


def test_node_summary_accepts_a_node_without_status():
    assert report.node_summary({"metadata": {"name": "n"}}) == {
        "name": "n",
        "ready": False,
        "address": "-",
        "labels": {},
        "taints": [],
        "gpus": 0,
    }


def test_status_names_exited_processes():
    processes = [
        {"name": "etcd", "pid": 1, "alive": False},
        {"name": "dns", "pid": 2, "alive": True},
    ]
    assert report.text({"up": False, "processes": processes}).startswith(
        "the cluster is broken (etcd exited)"
    )
    assert report.text({"up": False}) == "the cluster is not up"
