"""Rendering a plan for this machine: commands, directories, variables and addresses."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, SpecError
from symphony.model.settings.experiment_options import EXPERIMENT_OPTIONS
from symphony.model.settings.table import SETTINGS
from symphony.plan.changes import Snapshot
from symphony.plan.ignored import Ignored
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import Defaults, resolve
from symphony.plan.restart_policy import RestartPolicy
from symphony.supervised.changed_resources import snapshot
from symphony.supervised.processes.identity import RUN_ID_VARIABLE
from symphony.supervised.processes.spec import DEFAULT_GRACE_SECONDS, ProcessSpec
from symphony.supervised.render import HONOURED, HOST, HostManifest, render
from tests.unit.strategies import experiments, texts

SCHEME = AddressScheme(backend="local", host=lambda _: HOST, bind_host=HOST)
OPTIONS: dict[str, Any] = {
    "run_id": "r1",
    "launched": 0.0, "directory": Path("/state/local/e"), "working_directory": Path("/here"),
}  # fmt: skip
SHELL = shutil.which("bash") or "/bin/sh"


def rendered(
    experiment: Experiment, *, defaults: Defaults | None = None, shell: str = "/bin/bash"
) -> HostManifest:
    return render(resolve(experiment, SCHEME, defaults), shell=shell, **OPTIONS)


def spec(experiment: Experiment, name: str = "p", **options: Any) -> ProcessSpec:
    return next(item for item in rendered(experiment, **options).processes if item.name == name)


def one(**options: Any) -> Experiment:
    experiment = Experiment("e")
    experiment.new_process("p", **options)
    return experiment


# --- commands ---


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        ({"command": "a b"}, ["a b"]),
        ({"command": ["a", "b"], "args": ["c d", ""]}, ["a", "b", "c d", ""]),
        ({"cmd": "a | b"}, ["/bin/bash", "-c", "a | b"]),
        ({"cmds": ["a", "b"]}, ["/bin/bash", "-c", "{ a\n} && { b\n}"]),
        (
            {"cmd": "a", "preamble_cmds": ["x", "y"]},
            ["/bin/bash", "-c", "{ x\n} || exit\n{ y\n} || exit\na"],
        ),
        (
            {"command": "a", "args": "b c", "preamble_cmds": "x"},
            ["/bin/bash", "-c", '{ x\n} || exit\nexec "$@"', "/bin/bash", "a", "b c"],
        ),
    ],
)
def test_argv(options: dict[str, Any], argv: list[str]) -> None:
    assert spec(one(**options)).argv == tuple(argv)


@pytest.mark.parametrize("options", [{"container_image": "i"}, {"command": []}])
def test_process_without_a_command_is_refused(options: dict[str, Any]) -> None:
    experiment = Experiment("e")
    experiment.new_process_group("g").new_process("p", **options)
    with pytest.raises(SpecError) as refusal:
        rendered(experiment)
    assert str(refusal.value) == (
        "process 'g/p' has no command: this backend cannot run the entry point of an image; "
        "set command, cmd or cmds"
    )


def test_args_without_a_command_are_the_program() -> None:
    experiment = Experiment("e")
    experiment.new_process("p", args=["echo", "a"], preamble_cmds="export A=1")
    assert run(experiment).stdout == "a\n"
    experiment.new_process("q", args=["--option"], container_image="i")
    with pytest.raises(SpecError, match="process 'q' has no command: this backend cannot run"):
        rendered(experiment)


def test_all_processes_without_a_command_are_named() -> None:
    experiment = Experiment("e")
    experiment.new_process("a", container_image="i")
    experiment.new_process("b", command="true")
    experiment.new_process_group("g").new_process("c", args=["--option"], container_image="i")
    with pytest.raises(SpecError, match="^processes 'a', 'g/c' have no command: ") as refusal:
        rendered(experiment)
    assert refusal.value.path == ("processes", "a")


def run(
    experiment: Experiment, defaults: Defaults | None = None
) -> subprocess.CompletedProcess[str]:
    argv = spec(experiment, defaults=defaults, shell=SHELL).argv
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "kind", [{"cmd": 'echo "$TRAIL process"'}, {"command": ["sh", "-c", 'echo "$TRAIL process"']}]
)
def test_preambles_run_from_the_outside_in(kind: dict[str, Any]) -> None:
    experiment = Experiment("e", preamble_cmds='export TRAIL="$TRAIL experiment"')
    group = experiment.new_process_group("g", preamble_cmds='export TRAIL="$TRAIL group"')
    group.new_process("p", preamble_cmds='export TRAIL="$TRAIL own"  # and so on', **kind)
    done = run(experiment, Defaults(preamble_cmds=('export TRAIL="cluster"',)))
    assert done.stdout == "cluster experiment group own process\n"


FAILING_PREAMBLE = ["true", "(exit 7)", "echo later"]


@pytest.mark.parametrize(
    ("options", "code", "output"),
    [
        ({"cmd": "echo ran", "preamble_cmds": FAILING_PREAMBLE}, 7, ""),
        ({"command": ["echo", "ran"], "preamble_cmds": FAILING_PREAMBLE}, 7, ""),
        ({"cmds": ["echo one", "(exit 3)", "echo three"]}, 3, "one\n"),
        ({"cmds": ["echo one # a comment", "echo two"]}, 0, "one\ntwo\n"),
    ],
)
def test_first_failing_line_is_the_last(options: dict[str, Any], code: int, output: str) -> None:
    done = run(one(**options))
    assert (done.returncode, done.stdout) == (code, output)


@given(st.lists(texts, max_size=3))
def test_arguments_follow_a_preamble_unchanged(args: list[str]) -> None:
    argv = spec(one(command="prog", args=args, preamble_cmds="x")).argv
    assert argv[4:] == ("prog", *args)


def test_preamble_is_recorded_from_the_outside_in() -> None:
    experiment = Experiment("e", preamble_cmds="a")
    experiment.new_process("p", command="c", preamble_cmds=["b", "c"])
    assert spec(experiment, defaults=Defaults(preamble_cmds=("z",))).preamble == tuple("zabc")


# --- directories ---


@pytest.mark.parametrize(
    ("outer", "inner", "cwd"),
    [
        (None, None, "/here"),
        ("a", None, "/here/a"),
        ("a", "b", "/here/a/b"),
        ("a", "/b", "/b"),
        ("/a", "b", "/a/b"),
    ],
)
def test_relative_directories_start_in_the_working_directory(
    outer: str | None, inner: str | None, cwd: str
) -> None:
    experiment = Experiment("e", start_dir=outer)
    experiment.new_process("p", command="c", start_dir=inner)
    assert spec(experiment).cwd == cwd


def test_paths_in_a_file_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment("e", secrets=["token", "/etc/key"], start_dir="work")
    experiment.new_process("p", command="c")
    experiment.dump_file(tmp_path / "e.yml")
    manifest = rendered(Experiment.load_file(tmp_path / "e.yml"))
    assert manifest.processes[0].cwd == str(tmp_path / "work")
    assert manifest.secrets == {"token": str(tmp_path / "token"), "key": "/etc/key"}
    assert rendered(experiment).secrets["token"] == "/here/token"
    monkeypatch.setenv("HOME", "/home/ann")
    experiment.secrets = "~/key"
    assert rendered(experiment).secrets == {"key": "/home/ann/key"}


# --- variables ---


def with_services() -> Experiment:
    experiment = Experiment("e", env={"A": "experiment"})
    p = experiment.new_process("p", command="c", env={"A": "own", "SYMPH_S_PORT": "1"})
    p.binds({"s": 7005}).ready(tcp="s")
    group = experiment.new_process_group("g").binds("t").exposes({"web": 8080})
    group.ready(http=("web", "/up"), timeout=5)
    group.new_process("q", command="c", env={"SYMPH_RAY_ID": "7"}).binds("u").connects("s")
    return experiment


def test_shared_variables_are_separate_from_those_of_a_process() -> None:
    manifest = rendered(with_services())
    assert manifest.env["SYMPH_S_ADDR"] == "127.0.0.1:7005"
    assert manifest.env["SYMPH_WEB_BIND_HOST"] == "127.0.0.1"
    assert manifest.env["SYMPHONY_EXPERIMENT"] == "e"
    assert manifest.env["SYMPHONY_BACKEND"] == "local"
    assert manifest.env[RUN_ID_VARIABLE] == "r1"
    assert "SYMPHONY_SECRETS_DIR" not in manifest.env
    assert {item.name: item.env for item in manifest.processes} == {
        "p": {
            "A": "own",
            "SYMPHONY_ROLE": "p",
            "SYMPHONY_GROUP": "",
            "SYMPHONY_SCRATCH_DIR": "/state/local/e/scratch/p",
        },
        "q": {
            "A": "experiment",
            "SYMPH_RAY_ID": "7",
            "SYMPHONY_ROLE": "q",
            "SYMPHONY_GROUP": "g",
            "SYMPHONY_SCRATCH_DIR": "/state/local/e/scratch/q",
        },
    }


@given(experiments())
def test_process_has_the_environment_of_its_plan(data: dict[str, Any]) -> None:
    for member in data["processes"].values():
        for process in member.get("processes", {"": member}).values():
            process.update(command="c")
            process.pop("cmd", None), process.pop("cmds", None)
    plan = resolve(Experiment.load_dict(data), SCHEME)
    manifest = render(plan, shell="/bin/sh", **OPTIONS)
    for planned, item in zip(plan, manifest.processes, strict=True):
        expected = plan.environment(planned)
        found = {**manifest.env, **item.env}
        assert {key: found[key] for key in expected} == expected
        assert found.keys() - expected.keys() <= {
            RUN_ID_VARIABLE,
            "SYMPHONY_SECRETS_DIR",
            "SYMPHONY_SCRATCH_DIR",
        }


@pytest.mark.parametrize(
    ("name", "value"),
    [(RUN_ID_VARIABLE, "r1"), ("SYMPHONY_SECRETS_DIR", "/state/local/e/secrets")],
)
def test_user_cannot_replace_variables_of_symphony(name: str, value: str) -> None:
    experiment = Experiment("e", secrets="token")
    experiment.new_process("p", command="c", env={name: "mine"})
    manifest = rendered(experiment)
    assert {**manifest.env, **manifest.processes[0].env}[name] == value


# --- services ---


def test_services_and_the_processes_that_release_their_ports() -> None:
    manifest = rendered(with_services())
    assert manifest.services == {
        "s": "127.0.0.1:7005",
        "t": "127.0.0.1:7000",
        "web": "127.0.0.1:8080",
        "u": "127.0.0.1:7001",
    }
    assert manifest.exposed == ("web",)
    releases = {item.name: item.releases for item in manifest.processes}
    assert releases == {"p": (7005,), "q": (7000, 8080, 7001)}


@pytest.mark.parametrize(
    ("ready", "test", "timeout"),
    [
        ({"tcp": "s", "timeout": 2}, {"tcp": ["127.0.0.1", 7005]}, 2.0),
        ({"http": ("s", "/up")}, {"http": ["127.0.0.1", 7005, "/up"]}, 60.0),
        ({"command": ["test", "-e", "x"], "timeout": 0.5}, {"command": ["test", "-e", "x"]}, 0.5),
        ({"log": "^up"}, {"log": "^up"}, 60.0),
    ],
)
def test_readiness_test_has_addresses(ready: dict[str, Any], test: Any, timeout: float) -> None:
    experiment = one(command="c")
    assert spec(experiment).ready is None
    experiment.get_process("p").binds({"s": 7005}).ready(**ready)
    found = spec(experiment)
    assert (found.ready, found.ready_timeout) == (test, timeout)


def test_health_test_has_addresses() -> None:
    experiment = one(command="c")
    assert spec(experiment).healthy is None
    process = experiment.get_process("p").binds({"s": 7005})
    process.healthy(http="s/up", every="1m", failures=2)
    assert spec(experiment).healthy == {
        "http": ["127.0.0.1", 7005, "/up"],
        "every": 60,
        "failures": 2,
        "timeout": 5,
    }
    process.healthy(command="test -e ${s.port}")
    assert spec(experiment).healthy["command"][-1] == "test -e 7005"


# --- other settings ---


def test_grace_restart_order_and_gpus() -> None:
    experiment = Experiment("e")
    group = experiment.new_process_group("g").termination_grace_period(0).restart_policy("Always")
    group.new_process("p", command="c").resource_limit(gpu=2)
    experiment.new_process("q", command="c").starts_after("g", "started")
    found = [
        (item.grace, item.restart, item.gpus, item.starts_after, item.group)
        for item in rendered(experiment).processes
    ]
    assert found == [
        (0.0, RestartPolicy(policy="Always"), 2, {}, "g"),
        (DEFAULT_GRACE_SECONDS, RestartPolicy(), 0, {"p": "started"}, None),
    ]


def test_settings_of_other_backends_are_listed_as_ignored() -> None:
    experiment = Experiment("e")
    process = experiment.new_process("p", command="c", container_image="i", env={"A": "1"})
    process.binds("s").connects("s").exposes("w").ready(tcp="s").starts_after("q")
    process.restart_policy("Always").termination_grace_period(1)
    process.resource_request(cpu=1).resource_limit(cpu=1, memory="1M", gpu=1)
    process.image_pull_policy("Always").job(ttl=1).mount_pvc("c", "/m")
    process.node_selector("a", "b").add_toleration(operator="Exists").add_label("a", "b")
    process.pod_yml = {"a": 1}
    process.container_yml = {"a": 1}
    experiment.new_process("q", command="c")
    experiment.sbatch_options = ["--exclusive"]
    of_experiment, *ignored = rendered(experiment).ignored
    assert of_experiment == Ignored(setting="sbatch_options", processes=())
    assert {item.setting for item in ignored} == {
        "container_image", "resource_request.cpu", "resource_limit.cpu", "resource_limit.memory",
        "image_pull_policy", "job.ttl", "volumes.pvc", "node_selector", "tolerations", "labels",
        "pod_yml", "container_yml",
    }  # fmt: skip
    assert all(item.processes == ("p",) for item in ignored)


def test_honoured_settings_exist() -> None:
    known = {*SETTINGS, *EXPERIMENT_OPTIONS}
    assert {name.partition(".")[0] for name in HONOURED} <= known


# What the examples of settings need.
SURROUNDINGS = """\
name: e
secrets: {token: token.txt}
processes:
  server: {command: serve, binds: [store, server], ready: {tcp: server}}
  loader: {command: load}
  p:
    command: run
"""

# The digest of the code is a difference, and `launch` and `up` compute it.
COMPARED = sorted(({item.partition(".")[0] for item in HONOURED} & {*SETTINGS}) - {"code"})


@pytest.mark.parametrize("name", COMPARED)
def test_each_honoured_setting_makes_a_difference_to_a_running_experiment(
    name: str, tmp_path: Path
) -> None:
    for file in ("nginx.conf.in", "token.txt"):
        (tmp_path / file).write_text("")
    for file in ("common.env", "train.env"):
        (tmp_path / file).write_text("LEVEL=info\n")
    example = inspect.cleandoc(SETTINGS[name].example)
    others = {key: value for key, value in yaml.safe_load(example).items() if key != name}
    without = yaml.safe_dump(others) if others else ""
    assert snapshot_of(without, tmp_path) != snapshot_of(example, tmp_path)


def snapshot_of(settings: str, directory: Path) -> Snapshot:
    file = directory / "e.yml"
    file.write_text(SURROUNDINGS + textwrap.indent(settings, "    "))
    return snapshot(rendered(Experiment.load_file(file)).to_dict(), secrets={})


# --- the manifest ---


def test_text_of_a_manifest_is_the_dry_run() -> None:
    experiment = with_services()
    experiment.get_process("p").add_label("a", "b").restart_policy("OnFailure")
    experiment.ends_with, experiment.deadline = "p", "1m"
    shown = yaml.safe_load(str(rendered(experiment)))
    keys = ["experiment", "backend", "directory", "services", "env", "policies", "processes",
            "ignored"]  # fmt: skip
    assert list(shown) == keys
    assert shown["policies"] == {"ends_with": ["p"], "deadline": 60}
    assert shown["services"]["s"] == "127.0.0.1:7005"
    assert RUN_ID_VARIABLE not in shown["env"]
    assert shown["processes"]["p"] == {
        "command": "c",
        "folder": "/here",
        "env": {
            "A": "own",
            "SYMPHONY_ROLE": "p",
            "SYMPHONY_GROUP": "",
            "SYMPHONY_SCRATCH_DIR": "/state/local/e/scratch/p",
        },
        "ready": {"tcp": ["127.0.0.1", 7005], "timeout": 60.0},
        "restart_policy": "OnFailure",
    }
    assert shown["ignored"] == {"labels": ["p"]}


def test_manifest_as_json() -> None:
    manifest = rendered(with_services())
    data = json.loads(json.dumps(manifest.to_dict()))
    assert (data["experiment"], data["backend"], data["run_id"]) == ("e", "local", "r1")
    assert [ProcessSpec.from_dict(item) for item in data["processes"]] == list(manifest.processes)


@given(
    st.builds(
        ProcessSpec,
        name=st.just("p"),
        argv=st.lists(texts, min_size=1, max_size=3).map(tuple),
        cwd=texts,
        env=st.dictionaries(texts, texts, max_size=2),
        ready=st.one_of(st.none(), st.builds(lambda line: {"log": line}, texts)),
        releases=st.lists(st.integers(1, 65535), max_size=2).map(tuple),
        preamble=st.lists(texts, max_size=2).map(tuple),
    )
)
def test_process_survives_json(item: ProcessSpec) -> None:
    data = json.loads(json.dumps(item.to_dict()))
    assert ProcessSpec.from_dict(data) == item
    if not item.preamble:
        del data["preamble"]  # an older version wrote no preamble
        assert ProcessSpec.from_dict(data) == item
