"""The rules of lint, with the real backends as targets."""

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
from symphony.lint.merge import in_document_order, merge_findings
from symphony.lint.sizes import MAX_OBJECT_BYTES, MAX_STRING_BYTES, MAX_TOTAL_BYTES
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
    """Return an experiment with one process ``a``."""
    return build(lambda exp: exp.new_process("a", **{"command": "true", **options}))


def findings_of(exp: Experiment, target: Target | None = None, **options: Any) -> list[Finding]:
    return lint(exp, [target or Target("kube", KUBE)], machine=HERE, **options)


def problems_of(
    exp: Experiment, target: Target | None = None, **options: Any
) -> list[tuple[str, str, str]]:
    """Return the level, the rule and the problem of each finding."""
    return [
        (finding.level, finding.rule, finding.problem)
        for finding in findings_of(exp, target, **options)
    ]


def test_a_value_can_contain_the_addresses_of_other_processes(local: Target) -> None:
    exp = one(command=["true", "${b.addr}", "${pool.1.port}"], env={"ALL": "${pool.addrs}"})
    exp.set_envs({"OUTER": "${b.host}"})
    exp.new_process("b", command="true").binds("b").ready(command="true ${b.port}")
    exp.new_replicas("pool", 2, command="true", binds="pool")
    for target in (Target("kube", KUBE), local):
        assert problems_of(exp, target) == []


def test_a_portable_experiment_has_no_findings(local: Target) -> None:
    exp = Experiment(
        "rl", start_dir="data", env={"MODE": "fast", "URL": "http://example.org/home/x"}
    )
    exp.new_process("server", container_image="rl:1", command=["/usr/bin/env", "true"]).binds(
        "db"
    ).ready(tcp="db")
    exp.new_process("client", container_image="rl:1", cmd="exec true >/dev/null").connects(
        "db"
    ).starts_after("server")
    assert problems_of(exp, kube()) == []
    assert problems_of(one(), local) == []


# --- shells ---


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[[ $A == b ]] && python3 train.py", "[["),
        ("set -euo pipefail; python3 train.py | tee log", "set -o pipefail"),
        ("source env.sh && train", "source"),
        ("if true; then source env.sh; fi", "source"),
        ("diff <(sort a) <(sort b)", "<(...)"),
        ("printf $'a\\tb'", "$'...'"),
        ("files=(*.py); echo ${files[0]}", "an array"),
        ('[ "$A" == b ] && train', "== in a test"),
        ("cat <<< text", "<<<"),
        ("python3 -c 'a == [[1], [2]]' --source data; [ $A = b ] || x=$((1 + 2))", None),
        ("git source list; resource x; (cd a && b) > c", None),
    ],
)
def test_a_shell_line_that_needs_bash(line: str, found: str | None, local: Target) -> None:
    problem = f"a shell line contains {found}, so the image must contain bash"
    wanted = [] if found is None else [(NOTE, "needs-bash", problem)]
    experiment = one(command=None, cmd=line)
    assert problems_of(experiment) == wanted
    assert problems_of(experiment, local) == []


# --- structure ---


def test_an_error_about_a_missing_value_is_reported_once() -> None:
    exp = build(lambda exp: exp.new_ranks("a", 2, command="true"))
    exp.get_process("a-0").per_pod(2)
    problem = "has another value of per_pod than other ranks of its unit"
    assert [found for _, _, found in problems_of(exp)] == [problem]


def test_errors_of_the_experiment_are_reported_together() -> None:
    exp = one()
    exp.get_process("a").connects("x").starts_after("b").ready(tcp="y")
    assert [(level, rule) for level, rule, _ in problems_of(exp)] == [
        (ERROR, "unbound-service"),
        (ERROR, "ready"),
        (ERROR, "start-order"),
    ]


def test_a_service_that_no_process_uses_is_a_warning() -> None:
    exp = one()
    exp.get_process("a").binds(["used", "unused", "shown"]).exposes("shown").connects("used")
    assert problems_of(exp) == [
        (WARNING, "unused-service", "binds service 'unused', but no process connects to it")
    ]


def test_consequences_of_load_errors_are_not_reported() -> None:
    def problems_with(*path: str) -> list[str]:
        exp = one(container_image=None, env={"A": "localhost"})
        exp.get_process("a").connects("x")
        errors = [SpecError("wrong", path=path)]
        target = Target("kube", Cluster.new("kube"))
        return sorted(finding.rule for finding in findings_of(exp, target, load_errors=errors))

    assert problems_with("processes", "a", "job") == ["localhost", "no-image", "unbound-service"]
    assert problems_with("start_dir") == ["localhost", "no-image", "unbound-service"]
    image_path = ("processes", "a", "container_image")
    assert problems_with(*image_path) == ["localhost", "unbound-service"]
    assert problems_with("processes", "a", "env") == ["no-image", "unbound-service"]
    assert problems_with("processes", "b", "binds") == ["localhost", "no-image"]
    assert problems_with("processes", "b", "bind") == ["localhost", "no-image"]
    assert problems_with("processes", "b") == ["localhost", "no-image"]
    assert problems_with("processes", "a", "contianer_image") == []
    assert problems_with("process") == []


# --- errors of a backend ---


def test_a_container_needs_an_image(local: Target) -> None:
    exp = one()
    exp.new_process("b", command="true", container_image="x")
    exp.new_process("c", command="true").container_yml = {"image": "y"}
    assert [finding.processes for finding in findings_of(exp, kube())] == [("a",)]
    assert problems_of(exp, kube(image="rl:1")) == []
    assert problems_of(exp, local) == []


def test_all_names_that_are_too_long_are_reported() -> None:
    long = "a" * 50
    exp = Experiment("some-experiment")
    exp.new_process(long, command="true").binds(f"{long}-s").connects(f"{long}-s")
    exp.new_process_group(f"{long}-g").new_process(f"{long}-p", command="true")
    exp.new_process("short", command="true")
    shared = kube(image="rl:1", namespace="team-a")
    assert [(finding.rule, finding.path[-1]) for finding in findings_of(exp, shared)] == [
        ("name", long),
        ("name", f"{long}-s"),
        ("name", f"{long}-g"),
        ("name", f"{long}-p"),
    ]
    assert problems_of(exp) == []


def test_everything_that_the_machine_lacks_is_reported(local: Target, tmp_path: Path) -> None:
    exp = Experiment("rl", secrets={"token": "nowhere"})
    exp.base_dir = tmp_path
    exp.new_process("a", command="no-such-program")
    exp.new_process("b", command="true", start_dir="no-such-directory")
    exp.new_process("c", container_image="x")
    exp.new_process("d", command="true").set_env_secret("TOKEN", "token")
    group = exp.new_process_group("g")
    group.new_process("e", command="nor-this")
    group.new_process("f", command="true")
    assert [(finding.processes, finding.problem) for finding in findings_of(exp, local)] == [
        ((), f"secret 'token': there is no file {tmp_path / 'nowhere'}"),
        (("a",), "command 'no-such-program' was not found on the PATH"),
        (("b",), f"start_dir {tmp_path / 'no-such-directory'} is not a directory"),
        (("c",), "has no command: this backend cannot run the entry point of an image"),
        (("g/e",), "command 'nor-this' was not found on the PATH"),
    ]


def test_a_port_that_is_in_use_is_not_reported(local: Target) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        exp = one()
        exp.get_process("a").exposes({"web": server.getsockname()[1]})
        with pytest.raises(SpecError, match="in use"):
            local.cluster.manifest(exp)
        assert problems_of(exp, local) == []


@given(strategies.experiments())
def test_an_error_is_reported_if_and_only_if_the_backend_refuses(data: dict[str, Any]) -> None:
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
        for finding in findings_of(exp, offline=True)
        if finding.rule in ("refused", "name", "no-image")
    ]
    assert bool(errors) is refused
    assert exp.dump_dict() == before


# --- local addresses ---


@pytest.mark.parametrize(
    ("word", "literal"),
    [
        ("localhost", "localhost"),
        ("http://localhost/1", "localhost"),
        ("tcp://127.0.0.1:5555", "127.0.0.1:5555"),
        ("127.1.2.3", "127.1.2.3"),
        ("http://[::1]:80/x", "[::1]:80"),
        ("::1", "::1"),
        ("http://LOCALHOST/", "LOCALHOST"),
        ("tcp://0.0.0.0:5555", "0.0.0.0:5555"),
    ],
)
def test_local_addresses(word: str, literal: str) -> None:
    (finding,) = findings_of(one(args=["run", word]))
    assert (finding.rule, finding.level) == ("localhost", WARNING)
    assert finding.problem.startswith(f"args contains {literal}, ")
    assert finding.path == ("processes", "a", "args", 1)
    assert [item.rule for item in findings_of(one(env={"URL": word}))] == ["localhost"]


@pytest.mark.parametrize(
    "word",
    [
        *("localhosts", "my-localhost", "localhost.example.org", "10.127.0.0.1", "fe80::1", ""),
        *("0.0.0.0/0", "10.0.0.0/8,127.0.0.0/8", "::1/128"),
    ],
)
def test_other_addresses(word: str) -> None:
    assert problems_of(one(args=["run", word])) == []


def test_an_option_and_its_value_can_be_one_word() -> None:
    for separator in "= ":
        exp = one(args=["--listen", f"--master-addr{separator}0.0.0.0", "0.0.0.0:80"])
        exp.get_process("a").exposes("web")
        (finding,) = findings_of(exp)
        assert finding.problem.startswith("--master-addr contains 0.0.0.0, ")


def test_a_server_may_listen_on_every_address() -> None:
    exp = one(args=["--bind", "0.0.0.0:80", "--master-addr", "0.0.0.0"])
    exp.get_process("a").exposes("web")
    (finding,) = findings_of(exp)
    assert (
        finding.problem
        == "--master-addr contains 0.0.0.0, which is an address to listen on, not to connect to"
    )


def test_the_hint_names_the_service() -> None:
    exp = one(args=["--db", "localhost:5432", "--page", "127.0.0.1:6006"])
    exp.get_process("a").exposes({"page": 6006}).connects("replay")
    exp.new_process("b", command="true").binds({"db": 5432}).binds("replay")
    exp.new_process("c", command="true").connects("db")
    db, page = findings_of(exp)
    assert (db.level, db.problem) == (
        ERROR,
        "--db contains localhost:5432, but service 'db' is on another host",
    )
    assert db.hint == "connect to ${db.addr}"
    assert (page.level, page.problem) == (
        WARNING,
        "--page contains 127.0.0.1:6006, where only the process itself is reachable",
    )
    assert page.hint == "listen on ${page.bind_host}"


LISTEN = "to listen, use ${web.bind_host}"
CONNECT = "to connect, add the service to connects and use ${service.addr}"
EITHER = f"{LISTEN}, or {CONNECT}"


@pytest.mark.parametrize(
    ("args", "port", "hint"),
    [
        (
            ["--redis", "localhost:6379"],
            None,
            EITHER,
        ),  # symphony may choose this port
        (["--redis", "localhost:6379"], 80, CONNECT),
        (["--redis", "redis://:x@localhost"], None, CONNECT),
        (["--redis", "localhost"], 80, EITHER),
        (["--bind", "localhost:6379"], 80, LISTEN),
        (["--upstream", "localhost"], None, CONNECT),
        (["tcp://127.0.0.1:5555"], None, EITHER),  # ZeroMQ connects and listens with such URLs
        (["--page", "http://localhost:80/"], 80, "connect to ${web.addr}"),
        (["--page", "localhost:80"], 80, "listen on ${web.bind_host}"),
        (["--advertise-addr", "localhost:80"], 80, "connect to ${web.addr}"),
    ],
)
def test_a_server_may_be_a_client_too(args: list[str], port: int | None, hint: str) -> None:
    exp = one(args=args)
    exp.get_process("a").exposes({"web": port})
    assert [finding.hint for finding in findings_of(exp)] == [hint]


def test_the_hint_names_a_service_that_the_process_connects_to() -> None:
    exp = one(args=["--store", "localhost"])
    exp.get_process("a").exposes("web").connects("replay")
    exp.new_process("b", command="true").binds("replay")
    assert [finding.hint for finding in findings_of(exp)] == [
        f"{LISTEN}, or to connect, use ${{replay.addr}}"
    ]
    exp.get_process("a").connects("board")
    exp.new_process("c", command="true").binds("board")
    assert [finding.hint for finding in findings_of(exp)] == [
        f"{LISTEN}, or to connect, use ${{service.addr}} with one of the services in connects"
    ]


def test_a_local_address_for_users_of_another_service_is_a_warning() -> None:
    exp = one(env={"PUBLIC_URL": "http://localhost:80"})
    exp.new_process("b", command="true").exposes({"web": 80})
    (finding,) = findings_of(exp)
    assert (finding.rule, finding.level) == ("localhost", WARNING)


def test_several_processes_can_serve_one_port() -> None:
    exp = one(env={"LISTEN_PEER_URLS": "http://0.0.0.0:80", "PEER": "http://localhost:80"})
    exp.get_process("a").binds({"web": 80})
    exp.new_process("b", command="true").binds({"other": 80}).connects(["web", "other"])
    (finding,) = [item for item in findings_of(exp) if item.rule == "localhost"]
    assert (finding.level, finding.hint) == (WARNING, "connect to ${web.addr}")


def test_local_names_are_valid_on_a_local_backend(local: Target) -> None:
    assert (
        problems_of(one(args=["localhost", "/home/me/data"], env={"A": "127.0.0.1"}), local) == []
    )


# --- files next to the experiment file ---

WITH_FILES = Machine(
    home="/home/me",
    base="/srv/project",
    exists=lambda path: path in ("/srv/project/train.py", "/srv/project/src/./a.sh"),
)


def files_of(exp: Experiment, target: Target | None = None) -> list[tuple[str, str, str]]:
    """Return the level, the rule and the problem of each finding on a machine with files."""
    found = lint(exp, [target or Target("kube", KUBE)], machine=WITH_FILES)
    return [(finding.level, finding.rule, finding.problem) for finding in found]


@pytest.mark.parametrize(
    "options",
    [
        {"command": ["python", "train.py"]},
        {"command": "python", "args": ["train.py"]},
        {"command": None, "cmd": "python train.py; true"},
        {"command": None, "cmd": "exec python 'train.py' >log"},
        {"command": "true", "preamble_cmds": "python train.py"},
        {"command": ["python", "--script=train.py"]},
    ],
)
def test_a_file_that_the_image_may_not_contain(options: dict[str, Any], local: Target) -> None:
    exp = one(**options)
    ((level, rule, problem),) = files_of(exp)
    assert (level, rule) == (NOTE, "local-file")
    assert problem.endswith("contains train.py, a file of this machine")
    assert files_of(exp, local) == []


def test_a_file_in_the_start_directory() -> None:
    assert len(files_of(one(command=["sh", "./a.sh"], start_dir="src"))) == 1
    assert files_of(one(command=["python", "train.py"], start_dir="/app")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"command": ["python", "other.py"]},
        {"command": ["python", "train.python"]},
        {"command": ["python", "-m", "train"]},
        {"command": ["python", "train.py"], "code": "."},
        {"command": ["python", "train.py"], "container_image": "built:rl"},
    ],
)
def test_files_that_the_pod_can_have(options: dict[str, Any]) -> None:
    exp = one(**options)
    exp.build_image("built", context_directories=[{"name": "rl", "path": "."}])
    if "container_image" not in options:
        exp.new_process("b", command="true", container_image="built")
    assert files_of(exp) == []


# --- local paths ---


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"start_dir": "/home/me/work"}, ("start_dir",)),
        ({"command": "/home/me/venv/bin/python"}, ("command", 0)),
        ({"args": ["--data=/data/x,/usr/share"]}, ("args", 0)),
        ({"args": ["a:/srv/project/x"]}, ("args", 0)),
        ({"command": None, "cmd": "python '/mnt/x y' >/home/you/log"}, ("cmds", 0)),
        ({"env": {"HOME_OF": "/Users/me"}}, ("env", "HOME_OF")),
    ],
)
def test_local_paths(options: dict[str, Any], path: tuple[str | int, ...]) -> None:
    every = findings_of(one(**options))
    assert {(finding.rule, finding.level) for finding in every} == {("local-path", WARNING)}
    assert {finding.path for finding in every} == {("processes", "a", *path)}


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
def test_other_paths(word: str) -> None:
    assert problems_of(one(args=[word], env={"A": word})) == []


def test_a_path_in_a_volume_is_not_reported() -> None:
    exp = one(args=["/data/x", "/home/me/y"])
    exp.get_process("a").mount_pvc("claim", "/data")
    (finding,) = findings_of(exp)
    assert finding.problem == "args contains /home/me/y, a path of this machine"
    group = exp.new_process_group("g").mount_nfs("server", "/x", "/home/me")
    group.new_process("b", command="true", args=["/home/me/y"])
    assert len(findings_of(exp)) == 1


def test_a_value_of_the_experiment_is_reported_once() -> None:
    exp = Experiment("rl", start_dir="/home/me", env={"A": "/home/me/a", "B": "/home/me/b"})
    for name in ("x", "y"):
        exp.new_process(name, command="true", env={"B": "here"})
    assert [(finding.path, finding.processes) for finding in findings_of(exp)] == [
        (("start_dir",), ("x", "y")),
        (("env", "A"), ("x", "y")),
    ]


# --- sizes ---


@pytest.mark.parametrize(
    ("size", "level"),
    [
        (MAX_STRING_BYTES // 2, None),
        (MAX_STRING_BYTES * 9 // 10, WARNING),
        (MAX_STRING_BYTES - 3, WARNING),
        (MAX_STRING_BYTES - 2, ERROR),
    ],
)
def test_a_variable_has_at_most_32_pages(size: int, level: str | None) -> None:
    levels = [finding.level for finding in findings_of(one(env={"A": "x" * size}))]
    assert levels == ([] if level is None else [level])


def test_the_kernel_has_the_same_limit(tmp_path: Path) -> None:
    """Linux counts ``A=``, the value and the NUL at its end."""
    import subprocess

    fits = MAX_STRING_BYTES - len("A=") - 1
    assert subprocess.run(["/bin/true"], env={"A": "x" * fits}, check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"A": "x" * (fits + 1)}, check=False)


def test_arguments_and_shell_lines_have_the_same_limit() -> None:
    assert [
        finding.path[-2:] for finding in findings_of(one(args=["", "x" * MAX_STRING_BYTES]))
    ] == [("args", 1)]
    assert [
        finding.path[-1]
        for finding in findings_of(one(command=None, cmds=["true", "x" * MAX_STRING_BYTES]))
    ] == ["cmds"]


def test_all_variables_together_have_a_limit(local: Target) -> None:
    many = {f"A{number}": "x" * 120_000 for number in range(MAX_TOTAL_BYTES // 120_000 + 1)}
    errors = [finding for finding in findings_of(one(env=many), local) if finding.level == ERROR]
    assert [finding.problem.partition(" take")[0] for finding in errors] == [
        "all arguments and variables"
    ]


def test_an_object_contains_the_environment_of_a_whole_group(local: Target) -> None:
    exp = Experiment("rl")
    group = exp.new_process_group("g").set_env("A", "x" * 100_000)
    for number in range(MAX_OBJECT_BYTES // 100_000 + 1):
        group.new_process(f"p{number}", command="true")
    (finding,) = findings_of(exp)
    assert (finding.level, finding.processes) == (ERROR, ("g",))
    assert "more than the limit" in finding.problem
    assert problems_of(exp, local) == []


# --- GPUs ---


class Nodes(type(KUBE)):  # type: ignore[misc]
    """A kube cluster whose nodes have the given GPUs."""

    def __init__(self, offered: Mapping[str, int] | Exception) -> None:
        super().__init__(image="rl:1")
        self.offered = offered

    def node_gpus(self, resource: str | None = None) -> Mapping[str, int]:
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered if resource is None else {}


OFFERED = {"small": 1, "big": 4}


def gpus(
    number: int, nodes: Mapping[str, int] | Exception = OFFERED, *, offline: bool = False
) -> list[tuple[str, str, str]]:
    exp = one()
    exp.get_process("a").resource_limit(gpu=number)
    return problems_of(exp, Target("kube", Nodes(nodes)), offline=offline)


def test_more_gpus_than_any_node_has() -> None:
    assert gpus(4) == []
    assert gpus(5) == [(ERROR, "gpus", "requests 5 GPUs, but the largest node has 4")]
    assert gpus(1, nodes={}) == [(ERROR, "gpus", "requests 1 GPU, but no node has any")]


def test_kinds_of_gpus_are_compared_separately() -> None:
    exp = Experiment("rl")
    group = exp.new_process_group("g").resource_limit(gpu=4)
    group.new_process("a", command="true")
    group.new_process("b", command="true").resource_limit(gpu_resource="amd.com/gpu")
    assert problems_of(exp, Target("kube", Nodes(OFFERED))) == [
        (ERROR, "gpus", "requests 4 of amd.com/gpu, but no node has any")
    ]


def test_a_cluster_that_does_not_answer_is_a_note() -> None:
    skipped = "the GPUs of the nodes were not checked: "
    assert gpus(5, nodes=Unreachable("it sleeps")) == [(NOTE, "gpus", f"{skipped}it sleeps")]
    assert gpus(5, offline=True) == [
        (NOTE, "gpus", f"{skipped}no cluster is queried with --offline")
    ]
    assert gpus(0, nodes=Unreachable("it sleeps")) == []


def test_the_members_of_a_group_share_a_node() -> None:
    exp = Experiment("rl")
    group = exp.new_process_group("g").resource_limit(gpu=2)
    group.new_process("a", command="true")
    group.new_process("b", command="true").resource_limit(gpu=3)
    (finding,) = findings_of(exp, Target("kube", Nodes(OFFERED)))
    assert (finding.processes, finding.problem.partition(",")[0]) == (("g",), "requests 5 GPUs")


def test_all_processes_of_one_machine_share_its_gpus(
    local: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    exp = one()
    exp.get_process("a").resource_limit(gpu=2)
    assert problems_of(exp, local) == []
    exp.new_process("b", command="true").resource_limit(gpu=1)
    assert problems_of(exp, local) == [
        (ERROR, "gpus", "requests 1 GPU (3 with the processes before it), but this machine has 2")
    ]


# --- merging ---


def test_equal_findings_are_merged(local: Target) -> None:
    exp = Experiment("rl")
    for name in ("a", "b", "c"):
        exp.new_process(name, command="true").connects("x")
    (finding,) = lint(exp, [Target("kube", KUBE), local], machine=HERE)
    assert finding.processes == ("a", "b", "c")
    assert finding.targets == ("kube", "local")
    assert finding.path == ("processes", "a", "connects", 0)


def test_findings_are_in_the_order_of_the_file() -> None:
    paths: list[tuple[str | int, ...]] = [
        ("processes", "b", "args", 1),
        ("processes", "b", "args", 0),
        ("env",),
        (),
    ]
    findings = [Finding(rule="r", level=ERROR, problem="w", path=path) for path in paths]
    data = {"env": {}, "processes": {"b": {"args": ["x", "y"]}}}
    assert [finding.path for finding in in_document_order(findings, data)] == paths[::-1]
    beyond = Finding(rule="r", level=ERROR, problem="w", path=("nowhere", 1))
    assert in_document_order([beyond, *findings], data)[0].path == ("nowhere", 1)


def test_different_findings_are_not_merged() -> None:
    finding = Finding(rule="r", level=ERROR, problem="w", processes=("a",), targets=("kube",))
    changes: list[dict[str, Any]] = [{"problem": "v"}, {"level": NOTE}, {"hint": "m"}]
    others = [dataclasses.replace(finding, **change) for change in changes]
    assert merge_findings([finding, *others, finding]) == [finding, *others]


def test_a_finding_as_json() -> None:
    finding = Finding(
        rule="r",
        level=ERROR,
        problem="w",
        hint="m",
        path=("a", 1),
        processes=("p",),
        targets=("t",),
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


def test_ranks_on_one_machine_cannot_have_the_same_fixed_port(local: Target) -> None:
    train = {"ranks": 2, "command": "true", "exposes": {"metrics": 9000}}
    exp = Experiment.load_dict({"name": "e", "processes": {"train": train}})
    problem = "binds service 'metrics' on port 9000, which 'train-0' has on the same machine"
    assert problems_of(exp, local) == [("error", "port-twice", problem)]
    # Each rank is a Pod.
    assert problems_of(exp) == []


def test_services_on_one_machine_cannot_have_the_same_fixed_port(local: Target) -> None:
    exp = Experiment("e")
    exp.new_process("a", command="true").exposes({"x": 80})
    exp.new_process("b", command="true").exposes({"y": 80})
    problem = "gives port 80 to service 'y', but service 'x' of 'a' has it on the same machine"
    assert problems_of(exp, local) == [("error", "port-twice", problem)]
    # Each process is a Pod.
    assert problems_of(exp) == []


@pytest.mark.parametrize("args", [[], ["--verbose"]])
def test_a_process_that_needs_its_image_has_no_port_on_this_machine(
    local: Target, args: list[str]
) -> None:
    for name in ("a", "b"):
        exp = Experiment("e")
        exp.new_process("a", command="true").exposes({"x": 80})
        exp.new_process("b", command="true").exposes({"y": 80})
        exp.get_process(name).command = None
        exp.get_process(name).args = args
        (finding,) = findings_of(exp, local)
        assert (finding.rule, finding.processes) == ("refused", (name,))


def test_a_client_of_a_service_without_replicas_is_warned(local: Target) -> None:
    exp = Experiment("e")
    exp.new_replicas("server", 0, binds="inference", command="true")
    exp.new_process("client", command="true").connects("inference")
    problem = "connects to service 'inference', which has no replicas, so SYMPH_INFERENCE_ADDRS is"
    assert problems_of(exp, local) == [("warning", "no-replicas", f"{problem} empty")]


@pytest.mark.parametrize("replicas", [1, 3])
def test_replicas_that_bind_one_service_are_no_problem(replicas: int, local: Target) -> None:
    exp = Experiment("e")
    exp.new_replicas("server", replicas, binds="inference", command="true")
    exp.new_process("client", command="true").connects("inference")
    assert findings_of(exp, local) == []


def test_a_check_computes_the_absent_services_as_often_for_many_processes_as_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compute = Experiment.services_without_replicas.fget
    assert compute is not None
    calls: list[Experiment] = []

    def counted(experiment: Experiment) -> tuple[str, ...]:
        calls.append(experiment)
        return compute(experiment)

    monkeypatch.setattr(Experiment, "services_without_replicas", property(counted))
    counts = []
    for size in (2, 20):
        calls.clear()
        experiment = Experiment("a")
        experiment.new_process("server", command="x").binds("web")
        for number in range(size):
            experiment.new_process(f"client-{number}", command="x").connects("web")
        assert lint(experiment, [kube(image="rl:1")], machine=HERE) == []
        counts.append(len(calls))
    assert counts[0] == counts[1]
