"""``symphony mcp`` with the client of the library, as an agent uses it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.conftest import FOREVER, Program

# Calls a tool, and returns its answer and whether it is an error.
Call = Callable[..., Awaitable[tuple[str, bool]]]


@contextlib.asynccontextmanager
async def connected(program: Program, *options: str) -> AsyncIterator[tuple[Client, Call]]:
    """Start a server, and stop it at the end by closing its standard input."""
    command, *args = program.argv("mcp", *options)
    parameters = StdioServerParameters(
        command=command, args=args, env=program.env, cwd=program.directory
    )
    async with Client(stdio_client(parameters)) as client:

        async def call(tool: str, /, **arguments: Any) -> tuple[str, bool]:
            result = await client.call_tool(tool, arguments)
            content: Any = result.content[0]
            return content.text, bool(result.is_error)

        yield client, call


def test_an_agent_corrects_a_file_and_watches_the_experiment(program: Program) -> None:
    program.file(
        "rl", {"bad": {"command": ["sh", "-c", "seq 60; echo boom; exit 3"]}, "good": FOREVER}
    )
    path = program.directory / "rl.yml"
    right = path.read_text()

    async def work() -> None:
        async with connected(program, "--time-limit", "7") as (client, call):
            assert client.server_info is not None
            assert client.server_info.name == "symphony"
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            hints = [tools[name].annotations for name in ("ps", "down")]
            assert [hint and hint.read_only_hint for hint in hints] == [True, False]
            path.write_text(right.replace("command", "comand"))
            text, is_error = await call("launch", file="rl.yml")
            assert is_error
            assert text.startswith("symphony: error: rl.yml:1:")
            assert text.endswith("\nexit code 2")
            path.write_text(right)
            assert not (await call("launch", file="rl.yml"))[1]
            text, is_error = await call("wait", experiment="rl", processes=["bad"])
            assert is_error
            assert "boom" in text
            assert text.endswith("exit code 3")
            text, _ = await call("ps", experiment="rl")
            rows = [line.split()[:2] for line in text.splitlines()[1:3]]
            assert rows == [["bad", "failed"], ["good", "running"]]
            last = "\n".join([*map(str, range(52, 61)), "boom"])
            assert text.endswith(f"the last lines of the processes that have failed:\n{last}")
            text, _ = await call("logs", experiment="rl", processes=["bad"])
            lines = text.splitlines()
            assert (lines[0], lines[49]) == ("12", "boom")
            assert lines[50].startswith("to go on: logs with since=")
            since = text.rpartition("=")[2]
            assert not (await call("logs", experiment="rl", since=since, tail=3))[1]
            text, is_error = await call("wait", experiment="rl")
            assert (text[:18], is_error) == ("not finished after", False)

    asyncio.run(work())
    # The experiment goes on after the end of the server.
    states = {row["name"]: row["state"] for row in program.json("ps", "rl")["processes"]}
    assert states == {"bad": "failed", "good": "running"}


def test_the_scope_is_in_front_of_every_call(program: Program) -> None:
    program.launch("other", {"a": FOREVER})
    program.file("rl", {"a": FOREVER})

    async def work() -> None:
        async with connected(program, "--only", "rl*", "-b", "local") as (client, call):
            assert "whose names match rl*" in str(client.instructions)
            refusal = "symphony: error: experiment 'other' is out of scope: its name must match"
            for tool, arguments in {
                "ps": {"experiment": "other"},
                "stop": {"experiment": "other"},
                "delete": {"experiments": ["other"], "force": True},
                "launch": {"file": "other.yml", "force": True},
                "up": {"file": "other.yml"},
            }.items():
                text, is_error = await call(tool, **arguments)
                assert (text[: len(refusal)], is_error) == (refusal, True), tool
            assert not (await call("launch", file="rl.yml"))[1]
            text, _ = await call("delete", all=True, force=True)
            assert text == "deleted rl"
        async with connected(program, "--read-only") as (client, call):
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert ("ps" in names, "delete" in names) == (True, False)
            assert await call("down", experiment="other") == (
                "this server is read-only (--read-only), and down can change something",
                True,
            )
            assert await call("top") == ("top is not a tool: it needs a terminal", True)

    asyncio.run(work())
    assert program.cluster.list_experiments() == ["other"]


def test_the_tools_are_listed_without_a_client(program: Program) -> None:
    listed = {tool["name"]: tool for tool in program.json("mcp", "--read-only")}
    assert not listed["ps"]["changes"]
    assert "stop" not in listed
    names = [line.split()[0] for line in program.ok("mcp", "--list").splitlines()]
    assert names[0] == "NAME"
    assert {"ps", "stop"} <= {*names}


def test_a_missing_library_is_named(program: Program) -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; from symphony.commandline import main; "
        "sys.argv[1:] = ['mcp']; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=program.env, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert "'symphony mcp' needs the package 'mcp'; install it with: pip install" in done.stderr
    assert "[agents]" in done.stderr


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
FIRST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}) + "\n"


def is_answer(line: str) -> bool:
    found: bool = json.loads(line)["result"]["serverInfo"]["name"] == "symphony"
    return found


def test_nothing_but_the_protocol_is_on_standard_output(program: Program) -> None:
    done = program.process("mcp", input=FIRST)
    (line,) = done.stdout.splitlines()
    assert is_answer(line)
    assert (done.returncode, done.stderr) == (0, "")


def test_messages_can_come_from_a_file(program: Program) -> None:
    file = program.directory / "messages"
    file.write_text(FIRST)
    with file.open() as messages:
        served = program.popen("mcp", stdin=messages, stdout=subprocess.PIPE)
        output, _ = served.communicate(timeout=60)
    assert is_answer(output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_although_its_input_is_open(
    program: Program, number: signal.Signals
) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with program.popen("mcp", **pipes) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        assert served.stderr is not None
        served.stdin.write(FIRST)
        served.stdin.flush()
        assert is_answer(served.stdout.readline())
        served.send_signal(number)
        assert served.wait(timeout=60) == 130
        assert served.stderr.read() == ""


@pytest.mark.parametrize("directory", ["", "sub"])
def test_commands_run_in_the_directory(program: Program, directory: str) -> None:
    (program.directory / "sub").mkdir()
    path = program.file("rl", {"a": FOREVER})
    path.rename(program.directory / directory / "rl.yml")

    async def work() -> str:
        options = ["--directory", directory] if directory else []
        async with connected(program, *options) as (_, call):
            return (await call("check", file="rl.yml"))[0]

    assert asyncio.run(work()) == "rl.yml: no problems found for local"
