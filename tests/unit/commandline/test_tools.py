"""The tools of ``symphony mcp`` follow from the table of commands."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.commands.table import TABLE
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.tools import answers, calls
from symphony.commandline.tools.descriptions import LEFT_OUT, Tool, find_tools, refusal

LINE = SymphonyParser(prog="symphony")
TOOLS = find_tools(LINE, TABLE)
# A new command must be added here, or state with `no_tool` why agents cannot call it.
READING = {
    *("check", "render", "graph", "ls", "ps", "describe", "logs", "events", "wait"),
    *("history", "show", "compare", "services", "diff", "backends"),
}
CHANGING = {
    *("launch", "submit", "rerun", "up", "scale", "stop", "start", "restart", "signal"),
    *("exec", "down", "delete"),
}
NO_TOOLS = {
    *("attach", "completion", "config", "cp", "debug", "forward", "import", "init", "install"),
    *("mcp", "prune", "resume", "top", "ui", "visit"),
}


def test_each_command_is_decided() -> None:
    assert {name for name, tool in TOOLS.items() if not tool.changes} == READING
    assert {name for name, tool in TOOLS.items() if tool.changes} == CHANGING
    assert {*TABLE.titles} - {*TOOLS} == NO_TOOLS
    assert refusal("top", TABLE, TOOLS) == "top is not a tool: it needs a terminal"
    assert refusal("lunch", TABLE, TOOLS) == "there is no tool 'lunch'; did you mean 'launch'?"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_has_a_valid_schema_and_a_description(tool: Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.schema)
    assert len(tool.description) > 20
    assert "For example" not in tool.description
    for name, declared in tool.schema["properties"].items():
        assert name.replace("_", "").isalpha()
        assert declared["description"] or name == "set", name
        assert "%%" not in declared["description"]
    assert not LEFT_OUT & {action.dest for action in tool.actions.values()}


def test_the_arguments_are_those_of_the_command() -> None:
    logs = TOOLS["logs"].schema
    assert list(logs["properties"]) == [
        *("experiment", "processes", "since", "tail", "run", "timestamps", "grep", "failed"),
        *("previous", "backend"),
    ]
    assert logs["properties"]["tail"] == {
        "type": "integer",
        "minimum": 0,
        "description": "show only the last N lines of each process "
        "(default: 50, or all with since)",
    }
    assert logs["properties"]["failed"]["type"] == "boolean"
    assert logs["properties"]["processes"]["items"] == {"type": "string"}
    assert "required" not in logs
    launch = TOOLS["launch"].schema["properties"]
    assert launch["wait"]["enum"] == ["started", "ready"]
    assert launch["set"]["description"].endswith("; repeatable (NAME=VALUE)")
    assert launch["timeout"]["type"] == ["number", "string"]
    assert launch["dry_run"]["type"] == "boolean"
    assert TOOLS["signal"].schema["required"] == ["signal"]
    assert TOOLS["scale"].schema["required"] == ["counts"]
    assert TOOLS["exec"].schema["required"] == ["process", "command"]
    assert TOOLS["compare"].schema["required"] == ["first", "second"]


def test_a_description_is_that_of_the_command_without_options_that_the_tool_lacks() -> None:
    logs = TOOLS["logs"].description
    assert logs.startswith(
        "Show the output of processes.\n\nThe output of a single process is shown"
    )
    assert "With --run, the output of an earlier run is shown." in logs
    assert "--save" not in logs
    launch = TOOLS["launch"].description
    assert "--wait ready blocks until every process is ready" in launch
    for text in ("--follow", "--queue", "SIGTERM"):
        assert text not in launch


def test_no_tool_has_a_backend_if_the_command_line_selects_one() -> None:
    line = SymphonyParser(prog="symphony")
    line.args.backend = "local"
    assert "backend" not in find_tools(line, TABLE)["ps"].schema["properties"]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("ls", {}, "ls"),
        ("ps", {"experiment": "rl", "processes": ["a", "b-*"]}, "ps rl a b-*"),
        ("ps", {"experiment": None, "usage": False, "processes": []}, "ps"),
        ("logs", {"experiment": "rl", "tail": 0, "grep": "-x"}, "logs rl --tail=0 --grep=-x"),
        ("launch", {"file": "a.yml", "set": ["n=1", "m=2"]}, "launch a.yml --set=n=1 --set=m=2"),
        ("launch", {"dry_run": True, "on_failure": "stop"}, "launch --dry-run --on-failure=stop"),
        ("wait", {"timeout": 1.5, "backend": "tmux"}, "wait --timeout=1.5 --backend=tmux"),
        ("exec", {"process": "a", "command": ["ls", "--", "-l"]}, "exec a -- ls -- -l"),
    ],
)
def test_words_of_calls(tool: str, arguments: dict[str, Any], words: str) -> None:
    TOOLS[tool].check(arguments)
    assert TOOLS[tool].words(arguments) == words.split()


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("ps", {"experimant": "rl"}, "the tool ps has no argument 'experimant'; did you mean"),
        ("ps", {"follow": True}, "the tool ps has no argument 'follow'; it has experiment,"),
        ("ps", {"experiment": 3}, "ps: experiment must be a text, not 3"),
        ("ps", {"usage": "yes"}, "ps: usage must be true or false, not 'yes'"),
        ("ps", {"processes": "a"}, "ps: processes must be a list of texts, not 'a'"),
        ("ps", {"processes": [1]}, "ps: processes must be a list, each of whose items is a text"),
        ("logs", {"tail": True}, "logs: tail must be a whole number, not True"),
        ("logs", {"tail": -1}, "logs: tail must be at least 0, not -1"),
        ("launch", {"wait": "running"}, "launch: wait must be one of started, ready"),
        ("signal", {"experiment": "rl"}, "signal needs the argument 'signal'"),
        ("exec", {"process": "a", "command": []}, "exec needs the argument 'command'"),
        ("ps", {"experiment": "--state-dir=/"}, "ps: experiment must not begin with '-'"),
        ("ps", {"experiment": "rl", "processes": ["-b"]}, "ps: processes must not begin with '-'"),
    ],
)
def test_wrong_arguments(tool: str, arguments: dict[str, Any], error: str) -> None:
    def words_of_call() -> list[str]:
        TOOLS[tool].check(arguments)
        return TOOLS[tool].words(arguments)

    with pytest.raises(UsageError) as raised:
        words_of_call()
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("keeps_end", "kept"), [(True, "line 8\nline 9\n"), (False, "line 0\nline 1")]
)
def test_output_is_cut_at_lines(keeps_end: bool, kept: str) -> None:
    output = calls.Output(18, keeps_end=keeps_end)
    for number in range(10):
        output.add(f"line {number}\n".encode())
    assert (output.text, output.is_cut, output.size) == (kept, True, 70)


@pytest.mark.parametrize("keeps_end", [True, False])
def test_output_keeps_no_more_than_it_needs(keeps_end: bool) -> None:
    output = calls.Output(10, keeps_end=keeps_end)
    for number in range(30):
        output.add(str(number % 10).encode() * 20_000)
        assert len(output._kept) < 250_000
    assert output.text == ("9" if keeps_end else "0") * 10


async def ignore(_seconds: float, _line: str) -> None:
    """Report nothing."""


def run(code: str, seconds: float = 60) -> calls.Finished:
    words = [sys.executable, "-S", "-c", code]
    return asyncio.run(calls.run(words, limit=100, keeps_end=False, seconds=seconds, report=ignore))


def answer(tool: str, finished: calls.Finished, *, is_unfinished: bool = False) -> str:
    return answers.answer(TOOLS[tool], [tool, "a b"], finished, 1000.5, is_unfinished=is_unfinished)


NOTE = "import sys; print('note', file=sys.stderr); "


def test_an_answer_begins_with_the_error() -> None:
    failed = run(f"{NOTE}print('output'); sys.exit(3)")
    assert answer("ls", failed) == "note\noutput\nexit code 3"
    assert answer("ls", run(f"{NOTE}print('output')")) == "output\nnote"
    assert answer("ls", run("")) == "no output"


def test_an_answer_ends_with_how_to_go_on() -> None:
    cursor = "to go on: events with since=1970-01-01T00:16:39.500Z"
    assert answer("events", run("print(1)")) == f"1\n{cursor}"
    cut = answer("ls", run("print(*range(90), sep='\\n')")).splitlines()
    assert cut[0] == "0"
    assert cut[-1].startswith(
        "[cut: this is a part of 260 bytes; for the rest, run: symphony ls 'a b'"
    )


def test_a_command_is_interrupted_after_its_time() -> None:
    sleep = calls.run(["sleep", "1000"], limit=9, keeps_end=True, seconds=0.1, report=ignore)
    finished = asyncio.run(sleep)
    assert (finished.was_stopped, finished.exit_code) == (True, -signal.SIGINT)
    text = answer("ls", finished._replace(seconds=3.2))
    assert text.splitlines()[0] == "interrupted after 3 s, the time limit of a call"
    late = finished._replace(seconds=3.2, was_stopped=False)
    text = answer("ls", late, is_unfinished=True)
    assert text.splitlines()[0] == "not finished after 3 s; call ls again to go on"


def test_a_cancelled_command_is_interrupted(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = f"echo $$ >{started}.part; mv {started}.part {started}; exec sleep 1000"

    async def cancel_when_started() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_shell)
            while not started.exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    async def run_shell() -> None:
        await calls.run(["sh", "-c", code], limit=9, keeps_end=True, seconds=1000, report=ignore)

    anyio.run(cancel_when_started)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_failed_processes_come_first() -> None:
    table = "NAME STATE\na running\nb failed\nc pending\nd failed"
    rows = ["NAME STATE", "b failed", "d failed", "a running", "c pending"]
    assert answers.failed_first(table).splitlines() == rows
