"""From a plan to what runs on this machine, whole: arguments, folders, variables, addresses, what is ignored."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, SpecError
from symphony.host.processes.identity import RUN_ID_VARIABLE
from symphony.host.processes.spec import DEFAULT_GRACE_SECONDS, ProcessSpec
from symphony.host.render import HONOURED, HOST, HostManifest, render
from symphony.model.settings import LEVELS
from symphony.plan.addresses import AddressScheme
from symphony.plan.resolve import Defaults, resolve
from tests.unit.strategies import experiments, texts

SCHEME = AddressScheme(backend="local", host=lambda _: HOST, bind_host=HOST)
RUN = Path("/state/local/e")
SHELL = shutil.which("bash") or "/bin/sh"


def rendered(
    experiment: Experiment, *, defaults: Defaults | None = None, shell: str = "/bin/bash"
) -> HostManifest:
    return render(
        resolve(experiment, SCHEME, defaults),
        run_id="r1",
        directory=RUN,
        working_directory=Path("/here"),
        shell=shell,
    )


def command(experiment: Experiment, name: str, **options: Any) -> ProcessSpec:
    return next(item for item in rendered(experiment, **options).processes if item.name == name)


def one(**options: Any) -> Experiment:
    experiment = Experiment("e")
    experiment.new_process("p", **options)
    return experiment


# --- what runs ---


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
    assert command(one(**options), "p").argv == tuple(argv)


def test_a_process_without_a_command_cannot_run_here() -> None:
    experiment = Experiment("e")
    experiment.new_process_group("g").new_process("p", container_image="i")
    with pytest.raises(
        SpecError,
        match="process 'g/p' has no command: this backend cannot run the entry point of",
    ):
        rendered(experiment)


def test_an_empty_command_is_none() -> None:
    with pytest.raises(SpecError, match="has no command"):
        rendered(one(command=[]))


def run(
    experiment: Experiment, defaults: Defaults | None = None
) -> subprocess.CompletedProcess[str]:
    argv = command(experiment, "p", defaults=defaults, shell=SHELL).argv
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "kind", [{"cmd": 'echo "$TRAIL process"'}, {"command": ["sh", "-c", 'echo "$TRAIL process"']}]
)
def test_preambles_run_outermost_first_in_the_shell_of_the_command(kind: dict[str, Any]) -> None:
    experiment = Experiment("e", preamble_cmds='export TRAIL="$TRAIL experiment"')
    group = experiment.new_process_group("g", preamble_cmds='export TRAIL="$TRAIL group"')
    group.new_process("p", preamble_cmds='export TRAIL="$TRAIL own"  # and so on', **kind)
    done = run(experiment, Defaults(preamble_cmds=('export TRAIL="cluster"',)))
    assert done.stdout == "cluster experiment group own process\n"


@pytest.mark.parametrize("kind", [{"cmd": "echo ran"}, {"command": ["echo", "ran"]}])
def test_a_preamble_that_fails_is_the_end_with_its_exit_code(kind: dict[str, Any]) -> None:
    done = run(one(preamble_cmds=["true", "(exit 7)", "echo later"], **kind))
    assert (done.returncode, done.stdout) == (7, "")


def test_of_several_lines_the_first_that_fails_is_the_last() -> None:
    done = run(one(cmds=["echo one", "(exit 3)", "echo three"]))
    assert (done.returncode, done.stdout) == (3, "one\n")


def test_a_comment_ends_with_its_line() -> None:
    assert run(one(cmds=["echo one # first", "echo two"])).stdout == "one\ntwo\n"


@given(st.lists(texts, max_size=3))
def test_arguments_pass_a_preamble_untouched(args: list[str]) -> None:
    argv = command(one(command="prog", args=args, preamble_cmds="x"), "p").argv
    assert argv[4:] == ("prog", *args)


# --- folders ---


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
def test_folders_begin_here_unless_the_plan_says(
    outer: str | None, inner: str | None, cwd: str
) -> None:
    experiment = Experiment("e", start_dir=outer)
    experiment.new_process("p", command="c", start_dir=inner)
    assert command(experiment, "p").cwd == cwd


def test_what_was_read_from_a_file_begins_at_the_file(tmp_path: Path) -> None:
    experiment = Experiment("e", secrets=["token", "/etc/key"], start_dir="work")
    experiment.new_process("p", command="c")
    experiment.dump_file(tmp_path / "e.yml")
    manifest = rendered(Experiment.load_file(tmp_path / "e.yml"))
    assert manifest.processes[0].cwd == str(tmp_path / "work")
    assert manifest.secrets == {"token": str(tmp_path / "token"), "key": "/etc/key"}
    assert rendered(experiment).secrets["token"] == "/here/token"


# --- variables ---


def served() -> Experiment:
    experiment = Experiment("e", env={"A": "experiment"})
    experiment.new_process("p", command="c", env={"A": "own", "SYMPH_S_PORT": "1"}).binds(
        {"s": 7005}
    ).ready(tcp="s")
    group = (
        experiment.new_process_group("g")
        .binds("t")
        .exposes({"web": 8080})
        .ready(http=("web", "/up"), timeout=5)
    )
    group.new_process("q", command="c", env={"SYMPH_RAY_ID": "7"}).binds("u").connects("s")
    return experiment


def test_the_shared_variables_stand_once_and_a_command_has_its_own() -> None:
    manifest = rendered(served())
    assert manifest.env["SYMPH_S_ADDR"] == "127.0.0.1:7005"
    assert manifest.env["SYMPH_WEB_BIND_HOST"] == "127.0.0.1"
    assert manifest.env["SYMPHONY_EXPERIMENT"] == "e"
    assert manifest.env["SYMPHONY_BACKEND"] == "local"
    assert manifest.env[RUN_ID_VARIABLE] == "r1"
    assert "SYMPHONY_SECRETS_DIR" not in manifest.env
    own = {item.name: item.env for item in manifest.processes}
    assert own["p"] == {"A": "own", "SYMPHONY_ROLE": "p", "SYMPHONY_GROUP": ""}
    assert own["q"] == {
        "A": "experiment",
        "SYMPH_RAY_ID": "7",
        "SYMPHONY_ROLE": "q",
        "SYMPHONY_GROUP": "g",
    }


@given(experiments())
def test_what_a_process_sees_is_what_its_plan_says(data: dict[str, Any]) -> None:
    for member in data["processes"].values():
        for process in member.get("processes", {"": member}).values():
            process.update(command="c")
            process.pop("cmd", None), process.pop("cmds", None)
    plan = resolve(Experiment.load_dict(data), SCHEME)
    manifest = render(
        plan, run_id="r1", directory=RUN, working_directory=Path("/here"), shell="/bin/sh"
    )
    for planned, item in zip(plan, manifest.processes, strict=True):
        seen = {**manifest.env, **item.env}
        assert {key: seen[key] for key in plan.environment(planned)} == plan.environment(planned)
        assert seen.keys() - plan.environment(planned).keys() <= {
            RUN_ID_VARIABLE,
            "SYMPHONY_SECRETS_DIR",
        }


def test_secrets_are_named_by_their_folder() -> None:
    experiment = Experiment("e", secrets="token")
    experiment.new_process("p", command="c")
    assert rendered(experiment).env["SYMPHONY_SECRETS_DIR"] == "/state/local/e/secrets"


@pytest.mark.parametrize("name", [RUN_ID_VARIABLE, "SYMPHONY_SECRETS_DIR"])
def test_no_variable_of_the_user_s_replaces_what_symphony_says(name: str) -> None:
    experiment = Experiment("e", secrets="token")
    experiment.new_process("p", command="c", env={name: "mine"})
    manifest = rendered(experiment)
    assert {**manifest.env, **manifest.processes[0].env}[name] == manifest.env[name]


# --- services ---


def test_services_and_who_lets_their_ports_go() -> None:
    manifest = rendered(served())
    assert manifest.services == {
        "s": "127.0.0.1:7005", "t": "127.0.0.1:7000", "web": "127.0.0.1:8080", "u": "127.0.0.1:7001",
    }  # fmt: skip
    assert manifest.exposed == ("web",)
    assert {item.name: item.releases for item in manifest.processes} == {
        "p": (7005,),
        "q": (7000, 8080, 7001),
    }


@pytest.mark.parametrize(
    ("ready", "test", "timeout"),
    [
        ({"tcp": "s", "timeout": 2}, {"tcp": ["127.0.0.1", 7005]}, 2.0),
        ({"http": ("s", "/up")}, {"http": ["127.0.0.1", 7005, "/up"]}, 60.0),
        ({"command": ["test", "-e", "x"], "timeout": 0.5}, {"command": ["test", "-e", "x"]}, 0.5),
        ({"log": "^up"}, {"log": "^up"}, 60.0),
    ],
)
def test_readiness_has_addresses_where_it_had_services(
    ready: dict[str, Any], test: Any, timeout: float
) -> None:
    experiment = one(command="c")
    experiment.get_process("p").binds({"s": 7005}).ready(**ready)
    found = command(experiment, "p")
    assert (found.ready, found.ready_timeout) == (test, timeout)


def test_without_a_test_to_run_is_to_be_ready() -> None:
    assert command(one(command="c"), "p").ready is None


# --- the rest of what is honoured, and what is not ---


def test_grace_restart_order_and_gpus() -> None:
    experiment = Experiment("e")
    group = experiment.new_process_group("g").termination_grace_period(0).restart_policy("Always")
    group.new_process("p", command="c").resource_limit(gpu=2)
    experiment.new_process("q", command="c").starts_after("g", "started")
    p, q = rendered(experiment).processes
    assert (p.grace, p.restart, p.gpus, p.starts_after, p.group) == (0.0, "Always", 2, {}, "g")
    assert (q.grace, q.restart, q.gpus, q.starts_after, q.group) == (
        DEFAULT_GRACE_SECONDS,
        "Never",
        0,
        {"p": "started"},
        None,
    )


def test_what_this_machine_cannot_do_is_kept_and_listed_as_ignored() -> None:
    experiment = Experiment("e")
    everything = (
        experiment.new_process("p", command="c", container_image="i", env={"A": "1"})
        .binds("s")
        .connects("s")
    )
    everything.exposes("w").resource_request(cpu=1).resource_limit(
        cpu=1, memory=1, gpu=1
    ).image_pull_policy("Always")
    everything.restart_policy("Always").termination_grace_period(1).ready(tcp="s").job(
        ttl=1
    ).mount_pvc("c", "/m")
    everything.node_selector("a", "b").add_toleration(operator="Exists").add_label("a", "b")
    everything.pod_yml = {"a": 1}
    everything.container_yml = {"a": 1}
    everything.starts_after("q")
    experiment.new_process("q", command="c")
    ignored = rendered(experiment).ignored
    assert {item.setting for item in ignored} == {
        "container_image", "resource_request.cpu", "resource_limit.cpu", "resource_limit.memory", "image_pull_policy",
        "job", "volumes.pvc", "node_selector", "tolerations", "labels", "pod_yml", "container_yml",
    }  # fmt: skip
    assert all(item.processes == ("p",) for item in ignored)


def test_every_setting_is_honoured_or_ignored_by_name() -> None:
    assert {name.partition(".")[0] for name in HONOURED} <= set(LEVELS)


# --- the manifest ---


def test_the_text_of_a_manifest_is_the_dry_run() -> None:
    experiment = served()
    experiment.get_process("p").add_label("a", "b").restart_policy("OnFailure")
    shown = yaml.safe_load(str(rendered(experiment)))
    assert list(shown) == [
        "experiment",
        "backend",
        "directory",
        "services",
        "env",
        "processes",
        "ignored",
    ]
    assert shown["services"]["s"] == "127.0.0.1:7005"
    assert RUN_ID_VARIABLE not in shown["env"]
    assert shown["processes"]["p"] == {
        "command": "c", "folder": "/here", "env": {"A": "own", "SYMPHONY_ROLE": "p", "SYMPHONY_GROUP": ""},
        "ready": {"tcp": ["127.0.0.1", 7005], "timeout": 60.0}, "restart_policy": "OnFailure",
    }  # fmt: skip
    assert shown["ignored"] == {"labels": ["p"]}


def test_a_manifest_as_json_knows_it() -> None:
    manifest = rendered(served())
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
def test_a_command_survives_json(item: ProcessSpec) -> None:
    assert ProcessSpec.from_dict(json.loads(json.dumps(item.to_dict()))) == item


def test_a_command_that_was_written_before_preambles_were() -> None:
    item = ProcessSpec(name="p", argv=("c",), cwd="/")
    assert (
        ProcessSpec.from_dict(
            {key: value for key, value in item.to_dict().items() if key != "preamble"}
        )
        == item
    )


def test_the_preamble_stands_in_the_record_outermost_first() -> None:
    experiment = Experiment("e", preamble_cmds="a")
    experiment.new_process("p", command="c", preamble_cmds=["b", "c"])
    assert command(experiment, "p", defaults=Defaults(preamble_cmds=("z",))).preamble == (
        "z",
        "a",
        "b",
        "c",
    )
