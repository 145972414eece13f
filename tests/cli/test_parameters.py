"""Parameters of experiment files and the option ``--set``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FOREVER, Program

FILE = """\
name: rl
parameters:
  agents: 8
  greeting: hello
processes:
  learner:
    container_image: rl:1
    cmd: for word in ${greeting}; do echo $word ${agents} ${SYMPHONY_ROLE} $${agents:-none}; done
    binds: replay
  agent:
    count: ${agents}
    container_image: rl:1
    command: [printf, "%s\\\\n", "${greeting} ${index}"]
    connects: replay
    starts_after: {learner: started}
"""
OPTIONS = ("--set", "agents=2", "--set", "greeting=good=day")


@pytest.fixture
def file(program: Program) -> Path:
    path = program.directory / "rl.yml"
    path.write_text(FILE)
    return path


def check_run(program: Program, file: Path, **env: str) -> None:
    """Launch the file with `OPTIONS`, and check the output of its processes."""
    assert "3 processes" in program.ok("launch", file, *OPTIONS, **env)
    assert program("wait", "rl", **env).returncode == 0
    assert program.ok("logs", "rl", "learner", **env) == "good=day 2 learner none\n"
    assert program.ok("logs", "rl", "agent-1", **env) == "good=day 1\n"


def test_local_processes_receive_the_values(program: Program, file: Path) -> None:
    check_run(program, file)


def test_tmux_processes_receive_the_values(
    program: Program, file: Path, tmux_sockets: Path
) -> None:
    pytest.importorskip("libtmux")
    env = {"TMUX_TMPDIR": str(tmux_sockets), "SYMPHONY_BACKEND": "tmux", "TMUX": ""}
    try:
        check_run(program, file, **env)
    finally:
        assert program("delete", "-f", "rl", **env).returncode == 0


def test_kubernetes_objects_contain_the_values(program: Program, file: Path) -> None:
    manifest = program.ok("render", file, "-b", "kube", *OPTIONS)
    assert manifest.count("kind: Pod\n") == 3
    assert "- good=day 1\n" in manifest
    assert "for word in good=day; do echo $word 2 ${SYMPHONY_ROLE} ${agents:-none}; done" in (
        manifest
    )
    assert program.ok("render", file, "-b", "kube", agents="1").count("kind: Pod\n") == 2
    assert program.ok("render", file, "-b", "kube").count("kind: Pod\n") == 9


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("agnets=2", "rl.yml:2:1: parameters.agnets: "),
        ("agents=two", "rl.yml:11:5: processes.agent.count: "),
        ("agents", "--set: "),
        ("=2", "--set: "),
    ],
)
def test_error_names_the_option_or_the_position(
    program: Program, file: Path, value: str, message: str
) -> None:
    done = program("launch", file.name, "--set", value)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"symphony: error: {message}")
    assert program.state_entries() == []


PYTHON_FILE = """\
def build(exp, agents=2, *, greeting="hello", slow=False):
    for index in range(agents):
        exp.new_process(f"agent-{index}", command=["echo", greeting, repr(slow)])
"""


def test_build_function_receives_the_values_as_arguments(program: Program) -> None:
    path = program.directory / "rl.py"
    path.write_text(PYTHON_FILE)
    options = ("--set", "agents=3", "--set", "greeting=8", "--set", "slow=true")
    manifest = program.json("render", path, *options)
    assert [process["argv"] for process in manifest["processes"]] == [["echo", "8", "True"]] * 3
    assert len(program.json("render", path)["processes"]) == 2
    done = program("render", "rl.py", "--set", "agnets=3")
    assert done.returncode == 2
    assert (
        "rl.py: build(exp) has no argument 'agnets'; did you mean 'agents'? "
        "(declare it: def build(exp, agnets=1))"
    ) in done.stderr


def test_up_keeps_the_value_of_a_parameter_without_a_default(program: Program) -> None:
    (program.directory / "kept.yml").write_text(
        json.dumps(
            {
                "name": "kept",
                "parameters": {"rate": None},
                "processes": {"web": {"cmd": FOREVER, "env": {"RATE": "${rate}"}}},
            }
        )
    )
    program.ok("launch", "kept.yml", "--set", "rate=2")
    same = program("diff", "kept.yml")
    assert (same.returncode, same.stdout) == (0, "kept on local: no difference; 1 unchanged\n")
    assert "keeping --set rate=2 of 'kept'" in same.stderr
    changed = program("up", "kept.yml", "--dry-run", "--set", "rate=3")
    assert "env.RATE changed from '2' to '3'" in changed.stdout
    for options in (["--reset"], ["--name", "other"]):
        refused = program("diff", "kept.yml", *options)
        assert refused.returncode == 2
        assert "parameter 'rate' has no value; give --set rate=..." in refused.stderr


def test_up_keeps_the_options_of_the_launch_and_the_views_list_the_parameters(
    program: Program,
) -> None:
    process = {
        "cmd": FOREVER,
        "env": {"RATE": "${rate}", "AGENTS": "${agents}", "X": "${api_token}"},
    }
    (program.directory / "kept.yml").write_text(
        json.dumps(
            {
                "name": "kept",
                "parameters": {"rate": 1, "agents": 2, "api_token": "none"},
                "processes": {"web": {**process, "exposes": ["web"]}},
            }
        )
    )
    given = ["--set", "rate=2", "--set", "api_token=hunter-2", "--deadline", "6h"]
    address = program.ok("launch", "kept.yml", *given).splitlines()[1]
    kept = "keeping --set rate=2 --set 'api_token=(hidden)' --deadline 6h of 'kept'"

    same = program("diff", "kept.yml")
    assert (same.returncode, same.stdout) == (0, "kept on local: no difference; 1 unchanged\n")
    assert kept in same.stderr
    done = program("up", "kept.yml", "--set", "agents=3", "--deadline", "7h")
    assert "keeping --set rate=2 --set 'api_token=(hidden)' of 'kept'" in done.stderr
    assert done.stdout.splitlines() == [
        "kept on local: 1 restarted",
        "update the experiment: deadline changed from 21600 to 25200",
        "stop web: env.AGENTS changed from '2' to '3'",
        "start web",
        "changed kept on local: 1 restarted",
        address,
    ]
    assert program("up", "kept.yml").stdout.splitlines()[-1] == address
    assert program("restart", "kept").stdout.splitlines() == ["restarted web of kept", address]
    reset = program("diff", "kept.yml", "--reset")
    assert (reset.returncode, reset.stderr) == (1, "")
    assert "env.RATE changed from '2' to '1'; env.AGENTS changed from '3' to '2'" in reset.stdout
    assert "env.X changed from '(hidden)' to 'none'" in reset.stdout

    shown = "rate=2, agents=3, api_token=(hidden)"
    assert f"kept: parameters {shown}" in program("ps", "kept").stderr
    values = {"rate": "2", "api_token": "(hidden)", "agents": "3"}
    assert program.json("ps", "kept")["parameters"] == values
    program("delete", "-f", "kept")
    assert program.json("history")[0]["parameters"] == values
    assert shown.replace(" ", "") in program.ok("history")
    assert shown.replace(" ", "") in program.ok("show", "kept")
    again = program("rerun", "kept")
    assert again.stdout.splitlines()[1].split()[0] == "web"
    assert "rate=2" in program("ps", "kept").stderr


def test_a_parameter_that_the_file_no_longer_declares_is_not_kept(program: Program) -> None:
    path = program.directory / "less.yml"
    process = {"p": {"cmd": FOREVER}}
    path.write_text(json.dumps({"name": "less", "parameters": {"a": 1}, "processes": process}))
    program.ok("launch", path, "--set", "a=2")
    path.write_text(json.dumps({"name": "less", "processes": process}))
    done = program("up", path)
    assert (done.returncode, done.stderr) == (0, "")
