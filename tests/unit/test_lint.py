"""The rules of the portability linter, each on its own and together; targets are the real backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject

from symphony.cluster import Cluster
from symphony.errors import PluginError, SpecError, Unreachable
from symphony.lint import ERROR, NOTE, WARNING, Finding, Machine, Target, lint
from symphony.lint.findings import in_order, joined
from symphony.lint.sizes import ALL, OBJECT, STRING
from symphony.model import Experiment
from tests.unit import strategies

HERE = Machine(home="/home/me", base="/srv/project", exists=lambda path: path.startswith("/data"))
KUBE = Cluster.new("kube", image="rl:1")


def kube(**options: Any) -> Target:
    return Target("kube", Cluster.new("kube", **options))


@pytest.fixture
def local(tmp_path: Path) -> Target:
    return Target("local", Cluster.new("local", state_dir=tmp_path))


def build(change: Callable[[Experiment], object]) -> Experiment:
    exp = Experiment("rl")
    change(exp)
    return exp


def one(**options: Any) -> Experiment:
    """An experiment of one process ``a``."""
    return build(lambda exp: exp.new_process("a", **{"command": "true", **options}))


def found(exp: Experiment, target: Target | None = None, **options: Any) -> list[Finding]:
    return lint(exp, [target or Target("kube", KUBE)], machine=HERE, **options)


def told(
    exp: Experiment, target: Target | None = None, **options: Any
) -> list[tuple[str, str, str]]:
    """Level, rule, and what, of each finding."""
    return [
        (finding.level, finding.rule, finding.what) for finding in found(exp, target, **options)
    ]


def test_nothing_is_found_in_what_runs_everywhere(local: Target) -> None:
    exp = Experiment(
        "rl", start_dir="data", env={"MODE": "fast", "URL": "http://example.org/home/x"}
    )
    exp.new_process("server", container_image="rl:1", command=["/usr/bin/env", "true"]).binds(
        "db"
    ).ready(tcp="db")
    exp.new_process("client", container_image="rl:1", cmd="exec true >/dev/null").connects(
        "db"
    ).starts_after("server")
    assert told(exp, kube()) == []
    assert told(one(), local) == []


# --- services and start order ---


def test_a_service_that_no_process_binds() -> None:
    exp = one()
    exp.new_process("b", command="true").binds("replay").exposes("page")
    exp.get_process("a").connects(["replay", "reply", "page", "x"])
    first, second, third = found(exp)
    assert (first.what, first.mend) == (
        "connects to 'reply', which no process binds",
        "did you mean 'replay'?",
    )
    assert first.place == ("processes", "a", "connects", 1)
    assert second.what == "connects to 'page', which 'b' exposes but does not bind"
    assert second.mend == "let 'b' bind it too"
    assert third.mend == "let a process bind it; bound are replay"
    assert {finding.level for finding in (first, second, third)} == {ERROR}


def test_a_service_that_nobody_connects_to_is_a_warning() -> None:
    exp = one()
    exp.get_process("a").binds(["used", "unused", "shown"]).exposes("shown").connects("used")
    assert told(exp) == [(WARNING, "unused-service", "binds 'unused', and nobody connects to it")]


def test_a_service_and_a_port_belong_to_one() -> None:
    exp = one()
    exp.get_process("a").binds({"x": 7001}).exposes({"x": 7002, "p": 7003})
    exp.new_process("b", command="true").binds({"x": None, "y": 7003}).connects(["x", "y"])
    assert [(rule, what) for _, rule, what in told(exp)] == [
        ("two-ports", "binds and exposes 'x' on two ports"),
        ("bound-twice", "binds 'x', which 'a' binds too"),
        ("port-twice", "gives 'y' the port 7003, which 'p' of 'a' has"),
    ]


def test_a_readiness_test_is_of_ones_own_service() -> None:
    exp = one()
    exp.get_process("a").binds("x").connects("x").ready(tcp="y")
    group = exp.new_process_group("g").ready(http=("x", "/"))
    group.new_process("b", command="true")
    assert [(finding.processes, finding.place) for finding in found(exp)] == [
        (("a",), ("processes", "a", "ready")),
        (("g/b",), ("processes", "g", "ready")),
    ]


def test_who_binds_a_service_says_that_it_is_encrypted() -> None:
    exp = one()
    exp.get_process("a").encrypts("x").binds("y", encrypted=True).connects("y")
    assert told(exp) == [(ERROR, "encrypted", "encrypts 'x', which it does not bind")]


def test_the_start_order() -> None:
    exp = one()
    exp.get_process("a").starts_after("b")
    exp.new_process("b", command="true").starts_after("a")
    assert told(exp)[0][2] == "the start order is a cycle: 'a' waits for 'b' waits for 'a'"
    exp.get_process("b").starts_after("c")
    exp.new_process_group("g").starts_after("d").new_process("d", command="true")
    assert [what for _, _, what in told(exp)] == [
        "starts after 'c', which is not in the experiment",
        "starts after 'd', which is itself or a part of it",
    ]


def test_nothing_to_run() -> None:
    assert told(Experiment("rl")) == [(ERROR, "no-processes", "experiment 'rl' has no processes")]
    exp = one()
    exp.new_process_group("g")
    assert told(exp) == [(ERROR, "no-processes", "group 'g' has no processes")]


# --- what a backend refuses ---


def test_a_container_needs_an_image_unless_all_are_given_one(local: Target) -> None:
    exp = one()
    exp.new_process("b", command="true", container_image="x")
    exp.new_process("c", command="true").container_yml = {"image": "y"}
    assert [finding.processes for finding in found(exp, kube())] == [("a",)]
    assert told(exp, kube(image="rl:1")) == []
    assert told(exp, local) == []


def test_names_that_are_too_long_in_a_shared_namespace_all_at_once() -> None:
    long = "a" * 50
    exp = Experiment("some-experiment")
    exp.new_process(long, command="true").binds(f"{long}-s").connects(f"{long}-s")
    exp.new_process_group(f"{long}-g").new_process(f"{long}-p", command="true")
    exp.new_process("short", command="true")
    shared = kube(image="rl:1", namespace="team-a")
    assert [(finding.rule, finding.place[-1]) for finding in found(exp, shared)] == [
        ("name", long),
        ("name", f"{long}-s"),
        ("name", f"{long}-g"),
        ("name", f"{long}-p"),
    ]
    assert told(exp) == []


def test_everything_that_a_machine_lacks_is_told_at_once(local: Target, tmp_path: Path) -> None:
    exp = Experiment("rl", secrets={"token": "nowhere"})
    exp.base_dir = tmp_path
    exp.new_process("a", command="no-such-program")
    exp.new_process("b", command="true", start_dir="no-such-folder")
    exp.new_process("c", container_image="x")
    exp.new_process("d", command="true").set_env_secret("TOKEN", "token")
    group = exp.new_process_group("g")
    group.new_process("e", command="nor-this")
    group.new_process("f", command="true")
    assert [(finding.processes, finding.what) for finding in found(exp, local)] == [
        ((), f"secret 'token': there is no file {tmp_path / 'nowhere'}"),
        (("a",), "command 'no-such-program' was not found on the PATH"),
        (("b",), f"start_dir {tmp_path / 'no-such-folder'} is not a directory"),
        (("c",), "has no command: this backend cannot run the entry point of an image"),
        (("g/e",), "command 'nor-this' was not found on the PATH"),
    ]


def test_a_port_in_use_is_no_matter_of_the_file(local: Target) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        exp = one()
        exp.get_process("a").exposes({"web": server.getsockname()[1]})
        with pytest.raises(SpecError, match="in use"):
            local.cluster.manifest(exp)
        assert told(exp, local) == []


@given(strategies.experiments())
def test_what_a_backend_refuses_is_found_and_nothing_else(data: dict[str, Any]) -> None:
    exp = Experiment.load_dict(data)
    before = exp.dump_dict()
    try:
        KUBE.manifest(exp)
        refused = False
    except SpecError:
        refused = True
    except PluginError:  # nothing here makes the keys of encrypted services
        reject()
    errors = [
        finding
        for finding in found(exp, offline=True)
        if finding.rule in ("refused", "name", "no-image")
    ]
    assert bool(errors) is refused
    assert exp.dump_dict() == before


# --- addresses of this machine ---


@pytest.mark.parametrize(
    ("word", "literal"),
    [
        ("localhost", "localhost"),
        ("--redis=localhost:6379", "localhost:6379"),
        ("tcp://127.0.0.1:5555", "127.0.0.1:5555"),
        ("127.1.2.3", "127.1.2.3"),
        ("http://[::1]:80/x", "[::1]:80"),
        ("::1", "::1"),
        ("http://LOCALHOST/", "LOCALHOST"),
        ("tcp://0.0.0.0:5555", "0.0.0.0:5555"),
    ],
)
def test_an_address_of_this_machine(word: str, literal: str) -> None:
    (finding,) = found(one(args=["run", word]))
    assert (finding.rule, finding.level) == ("localhost", WARNING)
    assert finding.what.startswith(f"args names {literal}, ")
    assert finding.place == ("processes", "a", "args", 1)
    assert [item.rule for item in found(one(env={"URL": word}))] == ["localhost"]


@pytest.mark.parametrize(
    "word", ["localhosts", "my-localhost", "localhost.example.org", "10.127.0.0.1", "fe80::1", ""]
)
def test_what_is_no_address_of_this_machine(word: str) -> None:
    assert told(one(args=["run", word])) == []


def test_who_serves_something_listens_everywhere() -> None:
    exp = one(args=["--bind", "0.0.0.0:80", "--master-addr", "0.0.0.0"])
    exp.get_process("a").exposes("web")
    (finding,) = found(exp)
    assert (
        finding.what
        == "--master-addr names 0.0.0.0, which is an address to listen on and none to connect to"
    )


def test_the_remedy_names_the_service() -> None:
    exp = one(args=["--db", "localhost:5432", "--page", "127.0.0.1:6006"])
    exp.get_process("a").exposes({"page": 6006}).connects("replay")
    exp.new_process("b", command="true").binds({"db": 5432}).binds("replay")
    exp.new_process("c", command="true").connects("db")
    db, page = found(exp)
    assert (db.level, db.what) == (ERROR, "--db names localhost:5432, but 'db' is served elsewhere")
    assert db.mend == "connect to $SYMPH_DB_ADDR"
    assert (page.level, page.what) == (
        WARNING,
        "--page names 127.0.0.1:6006, where nobody but itself is",
    )
    assert page.mend == "listen on $SYMPH_PAGE_BIND_HOST"


LISTEN = "listen on $SYMPH_WEB_BIND_HOST, or, to connect, "
CONNECT = "let it connect to the service it needs, and use that one's SYMPH_<NAME>_ADDR"


@pytest.mark.parametrize(
    ("args", "port", "mend"),
    [
        (
            ["--redis", "localhost:6379"],
            None,
            LISTEN + CONNECT,
        ),  # symphony chooses the port: it may be this one
        (["--redis", "localhost:6379"], 80, CONNECT),
        (["--redis", "redis://:x@localhost"], None, CONNECT),
        (["--redis", "localhost"], 80, LISTEN + CONNECT),
        (["--bind", "localhost:6379"], 80, "listen on $SYMPH_WEB_BIND_HOST"),
        (["--upstream", "localhost"], None, CONNECT),
        (["tcp://127.0.0.1:5555"], None, LISTEN + CONNECT),  # to ZeroMQ it may be either
        (["--page", "http://localhost:80/"], 80, "connect to $SYMPH_WEB_ADDR"),
        (["--page", "localhost:80"], 80, "listen on $SYMPH_WEB_BIND_HOST"),
    ],
)
def test_who_serves_something_may_connect_too(args: list[str], port: int | None, mend: str) -> None:
    exp = one(args=args)
    exp.get_process("a").exposes({"web": port})
    assert [finding.mend for finding in found(exp)] == [mend]


def test_who_serves_something_connects_to_what_it_is_joined_with() -> None:
    exp = one(args=["--store", "localhost"])
    exp.get_process("a").exposes("web").connects("replay")
    exp.new_process("b", command="true").binds("replay")
    assert [finding.mend for finding in found(exp)] == [LISTEN + "use $SYMPH_REPLAY_ADDR"]


def test_this_machine_is_no_trouble_on_this_machine(local: Target) -> None:
    assert told(one(args=["localhost", "/home/me/data"], env={"A": "127.0.0.1"}), local) == []


# --- paths of this machine ---


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"start_dir": "/home/me/work"}, ("start_dir",)),
        ({"command": "/home/me/venv/bin/python"}, ("command", 0)),
        ({"args": ["--data=/data/x,/usr/share"]}, ("args", 0)),
        ({"args": ["a:/srv/project/x"]}, ("args", 0)),
        ({"command": None, "cmd": "python '/mnt/x y' >/home/you/log"}, ("cmds", 0)),
        ({"env": {"HOME_OF": "/Users/me"}}, ("env", "HOME_OF")),
    ],
)
def test_a_path_of_this_machine(options: dict[str, Any], place: tuple[str | int, ...]) -> None:
    every = found(one(**options))
    assert {(finding.rule, finding.level) for finding in every} == {("local-path", WARNING)}
    assert {finding.place for finding in every} == {("processes", "a", *place)}


@pytest.mark.parametrize(
    "word",
    [
        "/usr/bin/python3",
        "/tmp/x",
        "/app/main.py",
        "data/x",
        "http://x/home/me",
        "//home/me",
        "/",
        "/homes",
    ],
)
def test_a_path_that_may_be_anywhere(word: str) -> None:
    assert told(one(args=[word], env={"A": word})) == []


def test_a_path_below_a_mount_is_there() -> None:
    exp = one(args=["/data/x", "/home/me/y"])
    exp.get_process("a").mount_pvc("claim", "/data")
    (finding,) = found(exp)
    assert finding.what == "args names /home/me/y, a path of this machine"
    group = exp.new_process_group("g").mount_nfs("server", "/x", "/home/me")
    group.new_process("b", command="true", args=["/home/me/y"])
    assert len(found(exp)) == 1


def test_what_holds_for_all_is_told_once_where_it_stands() -> None:
    exp = Experiment("rl", start_dir="/home/me", env={"A": "/home/me/a", "B": "/home/me/b"})
    for name in ("x", "y"):
        exp.new_process(name, command="true", env={"B": "here"})
    assert [(finding.place, finding.processes) for finding in found(exp)] == [
        (("start_dir",), ("x", "y")),
        (("env", "A"), ("x", "y")),
    ]


# --- sizes ---


@pytest.mark.parametrize(
    ("size", "level"),
    [(STRING // 2, None), (STRING * 9 // 10, WARNING), (STRING - 3, WARNING), (STRING - 2, ERROR)],
)
def test_one_variable_is_at_most_32_pages(size: int, level: str | None) -> None:
    levels = [finding.level for finding in found(one(env={"A": "x" * size}))]
    assert levels == ([] if level is None else [level])


def test_the_limit_of_a_variable_is_that_of_the_kernel(tmp_path: Path) -> None:
    """``A=``, the value and the NUL at its end are what Linux counts."""
    import subprocess

    fits = STRING - len("A=") - 1
    assert subprocess.run(["/bin/true"], env={"A": "x" * fits}, check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"A": "x" * (fits + 1)}, check=False)


def test_arguments_and_shell_lines_have_the_same_limit() -> None:
    assert [finding.place[-2:] for finding in found(one(args=["", "x" * STRING]))] == [("args", 1)]
    assert [
        finding.place[-1] for finding in found(one(command=None, cmds=["true", "x" * STRING]))
    ] == ["cmds"]


def test_all_variables_together_have_one_too(local: Target) -> None:
    many = {f"A{number}": "x" * 120_000 for number in range(ALL // 120_000 + 1)}
    errors = [finding for finding in found(one(env=many), local) if finding.level == ERROR]
    assert [finding.what.partition(" takes")[0] for finding in errors] == [
        "all of its arguments and environment"
    ]


def test_an_object_holds_the_environment_of_a_whole_group(local: Target) -> None:
    exp = Experiment("rl")
    group = exp.new_process_group("g").set_env("A", "x" * 100_000)
    for number in range(OBJECT // 100_000 + 1):
        group.new_process(f"p{number}", command="true")
    (finding,) = found(exp)
    assert (finding.level, finding.processes) == (ERROR, ("g",))
    assert "near" not in finding.what
    assert told(exp, local) == []


# --- GPUs ---


class Nodes(type(KUBE)):  # type: ignore[misc]
    """The real cluster, but for what its nodes have."""

    def __init__(self, offered: Mapping[str, int] | Exception) -> None:
        super().__init__(image="rl:1")
        self.offered = offered

    def node_gpus(self) -> Mapping[str, int]:
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered


OFFERED = {"small": 1, "big": 4}


def gpus(
    number: int, nodes: Mapping[str, int] | Exception = OFFERED, *, offline: bool = False
) -> list[tuple[str, str, str]]:
    exp = one()
    exp.get_process("a").resource_limit(gpu=number)
    return told(exp, Target("kube", Nodes(nodes)), offline=offline)


def test_gpus_that_no_node_offers() -> None:
    assert gpus(4) == []
    assert gpus(5) == [(ERROR, "gpus", "asks for 5 GPUs, and the most that a node offers is 4")]
    assert gpus(1, nodes={}) == [(ERROR, "gpus", "asks for 1 GPU, and no node offers any")]


def test_a_cluster_that_does_not_answer_is_told_and_no_error() -> None:
    said = "whether nodes have its GPUs was not looked at: "
    assert gpus(5, nodes=Unreachable("it sleeps")) == [(NOTE, "gpus", f"{said}it sleeps")]
    assert gpus(5, offline=True) == [(NOTE, "gpus", f"{said}no cluster was asked")]
    assert gpus(0, nodes=Unreachable("it sleeps")) == []


def test_the_members_of_a_group_share_a_node() -> None:
    exp = Experiment("rl")
    group = exp.new_process_group("g").resource_limit(gpu=2)
    group.new_process("a", command="true")
    group.new_process("b", command="true").resource_limit(gpu=3)
    (finding,) = found(exp, Target("kube", Nodes(OFFERED)))
    assert (finding.processes, finding.what.partition(",")[0]) == (("g",), "asks for 5 GPUs")


def test_on_one_machine_all_run_at_once(local: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    exp = one()
    exp.get_process("a").resource_limit(gpu=2)
    assert told(exp, local) == []
    exp.new_process("b", command="true").resource_limit(gpu=1)
    assert told(exp, local) == [
        (ERROR, "gpus", "asks for 1 GPU, with those before it 3, and this machine has 2")
    ]


# --- many ---


def test_the_same_of_many_is_one_finding(local: Target) -> None:
    exp = Experiment("rl")
    for name in ("a", "b", "c"):
        exp.new_process(name, command="true").connects("x")
    (finding,) = lint(exp, [Target("kube", KUBE), local], machine=HERE)
    assert finding.processes == ("a", "b", "c")
    assert finding.targets == ("kube", "local")
    assert finding.place == ("processes", "a", "connects", 0)


def test_findings_stand_in_the_order_of_the_file() -> None:
    places: list[tuple[str | int, ...]] = [
        ("processes", "b", "args", 1),
        ("processes", "b", "args", 0),
        ("env",),
        (),
    ]
    findings = [Finding(rule="r", level=ERROR, what="w", place=place) for place in places]
    data = {"env": {}, "processes": {"b": {"args": ["x", "y"]}}}
    assert [finding.place for finding in in_order(findings, data)] == places[::-1]
    beyond = Finding(rule="r", level=ERROR, what="w", place=("nowhere", 1))
    assert in_order([beyond, *findings], data)[0].place == ("nowhere", 1)


def test_those_that_differ_stay_apart() -> None:
    finding = Finding(rule="r", level=ERROR, what="w", processes=("a",), targets=("kube",))
    changes: list[dict[str, Any]] = [{"what": "v"}, {"level": NOTE}, {"mend": "m"}]
    others = [dataclasses.replace(finding, **change) for change in changes]
    assert joined([finding, *others, finding]) == [finding, *others]


def test_a_finding_is_plain_data() -> None:
    finding = Finding(
        rule="r", level=ERROR, what="w", mend="m", place=("a", 1), processes=("p",), targets=("t",)
    )
    assert finding.to_dict() == {
        "rule": "r",
        "level": "error",
        "targets": ["t"],
        "processes": ["p"],
        "place": ["a", 1],
        "what": "w",
        "mend": "m",
    }
