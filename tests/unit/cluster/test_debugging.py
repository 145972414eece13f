"""Commands under a debugger, descriptions with one, launch.json, and the errors of py-spy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from symphony import Experiment, SpecError
from symphony.cluster.debug.python_command import parse_arguments, parse_line, parse_lines
from symphony.cluster.debug_programs import dump_stacks
from symphony.cluster.described import debug_sessions, under_debugger, without_debugger
from symphony.commandline.commands.vscode import (
    attach_configuration,
    merged_text,
    write_configuration,
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python main.py -m x", "python -m pdb main.py -m x"),
        ("/opt/bin/python3.11 -u -X dev main.py", "/opt/bin/python3.11 -u -X dev -m pdb main.py"),
        ("python3 -um train --rate 1", "python3 -u -m pdb -m train --rate 1"),
        ("python3 -mtrain", "python3 -m pdb -m train"),
        ("python3 -Wignore -c pass", "python3 -Wignore -m pdb -c pass"),
        ("env A=1 python3 main.py", "env A=1 python3 -m pdb main.py"),
    ],
)
def test_a_python_command_runs_under_a_module(words: str, expected: str) -> None:
    command = parse_arguments(words.split())
    assert command is not None
    assert command.arguments(["pdb"]) == expected.split()
    line = parse_line(words)
    assert line is not None
    assert line.line(["pdb"]) == expected


@pytest.mark.parametrize(
    "words",
    ["python3", "python3 -u", "python3 -m", "python3 --version", "bash -c x", "./main.py", "env"],
)
def test_other_commands_are_not_python_commands(words: str) -> None:
    assert parse_arguments(words.split()) is None
    assert parse_line(words) is None


def test_the_rest_of_a_shell_line_is_kept() -> None:
    line = "  exec A=1 python3 -u 'my main.py' --rate $RATE 2>&1 | tee \"a;b\""
    command = parse_line(line)
    assert command is not None
    assert command.line(["pdb"]) == line.strip().replace("-u ", "-u -m pdb ")
    for refused in ("python3 a.py; python3 b.py", "python3 a.py &", "A='x y' python3 a.py"):
        assert parse_line(refused) is None
    found = parse_lines(["cd src", "python3 a.py"])
    assert found is not None
    assert found[0] == 1
    assert parse_lines(["python3 a.py", "python3 b.py"]) is None


def test_a_description_is_the_same_after_the_debugger() -> None:
    experiment = Experiment("rl", env={"A": "1"})
    group = experiment.new_process_group("agents").healthy(command="test -e agents", every=7)
    process = group.new_process("agent", command=["python3"], args=["main.py", "--rate=1"])
    process.set_env("B", '{"c": 1}')
    experiment.new_process("server", cmds=["cd src", "python3 main.py"]).binds("web").ready(
        tcp="web"
    )
    experiment.base_dir = "/project"
    before = experiment.dump_dict()
    changed = under_debugger(experiment, "agent", ["pdb"], "one", tty=True)
    changed = under_debugger(changed, "server", ["pdb"], "two")
    described = changed.dump_dict()["processes"]
    agent, server = described["agents"]["processes"]["agent"], described["server"]
    assert agent["command"] == ["python3", "-m", "pdb", "main.py", "--rate=1"]
    assert agent["tty"] is True
    # A process at a breakpoint does not answer, and is not stopped because of this.
    assert (agent["healthy"]["every"], agent["healthy"]["failures"]) == (7, 10**9)
    assert server["cmds"] == ["cd src", "python3 -m pdb main.py"]
    assert server["ready"]["timeout"] > 24 * 3600
    stored = json.loads(json.dumps(changed.dump_dict()))
    assert debug_sessions(stored) == {"agent": "one", "server": "two"}
    assert list(debug_sessions(without_debugger(changed, ["agent"]).dump_dict())) == ["server"]
    restored = without_debugger(Experiment.load_dict(stored))
    assert restored.dump_dict() == before
    assert without_debugger(changed).base_dir == Path("/project")
    experiment.new_process("sh", command=["sh", "run.sh"])
    with pytest.raises(SpecError, match="process 'sh' runs 'sh run.sh'.*symphony forward rl sh"):
        under_debugger(experiment, "sh", ["pdb"], "")


CONFIGURATION = attach_configuration("symphony: rl/p", "127.0.0.1", 5678, "/here", "/symphony/code")
COMMENTED = """// "configurations": [
{
    "version": "0.2.0", /* kept */
    "configurations": [
        // mine
        {"name": "mine", "url": "http://x//y",},
    ],
    "compounds": [],
}
"""


def test_a_configuration_is_added_to_launch_json_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / ".vscode" / "launch.json"
    write_configuration(path, CONFIGURATION)
    assert json.loads(path.read_text())["configurations"] == [CONFIGURATION]
    changed = {**CONFIGURATION, "connect": {"port": 1}}
    write_configuration(path, changed)
    assert json.loads(path.read_text())["configurations"] == [changed]
    for text in ("{}", '{"version": "1"}', '{"configurations": []}'):
        assert json.loads(merged_text(text, CONFIGURATION))["configurations"] == [CONFIGURATION]
    added = merged_text(COMMENTED, CONFIGURATION)
    start, end = COMMENTED.split("        // mine")
    assert added.startswith(start.rstrip())
    assert added.endswith(f"        // mine{end}")
    replaced = merged_text(added, changed)
    assert merged_text(replaced, CONFIGURATION) == added
    for wrong in ("[1]", "{", '{"configurations": 1}'):
        path.write_text(wrong)
        with pytest.raises(SpecError, match=r"launch\.json: .*; correct the file"):
            write_configuration(path, CONFIGURATION)
        assert path.read_text() == wrong


def test_py_spy_can_be_missing_or_not_permitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    assert dump_stacks.main(os.getpid(), []) == dump_stacks.MISSING
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2; exit 1")
    fake.chmod(0o755)
    assert dump_stacks.main(os.getpid(), []) == dump_stacks.NOT_PERMITTED
    # The pid of no process.
    assert dump_stacks.main(2**22 + 1, []) == dump_stacks.NO_PYTHON
