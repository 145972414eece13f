"""``symphony exec``, ``attach``, ``cp``, ``forward`` and ``visit`` on the local backend."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator

import pytest

from symphony.status import State
from tests.cli.conftest import FOREVER, Program, cleaned_up


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A running experiment for all tests that change nothing.

    It consists of a process that exposes a service, and a group.
    """
    web = {"cmd": FOREVER, "exposes": ["web"]}
    with cleaned_up(Program(tmp_path_factory.mktemp("running"))) as made:
        made.launch("rl", {"a": web, "crew": {"processes": {"b": {"cmd": FOREVER}}}})
        yield made


class TestExec:
    def test_json_output(self, running: Program) -> None:
        script = "echo out; echo err >&2; exit 6"
        done = running("exec", "rl", "a", "--json", "--", "sh", "-c", script)
        assert done.returncode == 6
        assert json.loads(done.stdout) == {"exit_code": 6, "stdout": "out\n", "stderr": "err\n"}

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (["a"], "the command is missing: symphony exec rl a -- CMD..."),
            (["a", "--"], "the command is missing: symphony exec rl a -- CMD..."),
            (["a", "no", "--", "ls"], "the command must follow --: symphony exec rl a -- no ls"),
        ],
    )
    def test_error_contains_the_line_to_type(
        self, running: Program, words: list[str], error: str
    ) -> None:
        done = running("exec", "rl", *words)
        assert (done.returncode, error in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["attach", "ssh"])
def test_attach_names_the_setting(running: Program, command: str) -> None:
    done = running(command, "rl", "crew/b")
    assert (done.returncode, done.stdout) == (2, "")
    assert "process 'crew/b' has no terminal: set tty: true on it" in done.stderr


# The question of a debugger, which reads the answer from the terminal.
DEBUGGED = """
import os, sys
print("answer:", flush=True)
answer = input()
print(f"{answer} {tuple(os.get_terminal_size())}", flush=True)
sys.exit(3 if input() == "end" else 1)
"""


def test_attach_joins_and_leaves_the_terminal_of_a_process(program: Program) -> None:
    name = program.launch("rl", {"a": {"command": [sys.executable, "-c", DEBUGGED], "tty": True}})
    first = program.terminal("attach", name, "a", width=90)
    first.expect("attached to a; leave with Ctrl-P Ctrl-Q")
    first.press("forty-\x10two\r")
    first.expect("forty-\x10two (90, 24)")
    first.press("\x10\x11")
    assert first.finish() == 0
    assert program.cluster.describe_process(name, "a").state is State.RUNNING
    second, third = (program.terminal("attach", name, "a") for _ in range(2))
    third.expect("attached to a")
    second.expect("attached to a")
    second.press("end\r")
    assert (second.finish(), third.finish()) == (0, 0)
    assert program.cluster.wait(name, timeout=60).exit_code == 3
    assert "\nforty-\x10two (90, 24)\n" in program.cluster.get_log(name, "a")
    assert program("attach", name, "a").returncode == 2


def test_forward_prints_the_address_or_relays_to_it(running: Program) -> None:
    address = running.cluster.external_url("rl", "web")
    assert running.ok("forward", "rl", "web") == f"{address}\n"
    port = int(address.rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        running.cluster.port_forward("rl", "web", local_port=_free_port()) as tunnel,
        socket.create_connection(tunnel.address.split(":")) as client,
    ):
        assert tunnel.forwarded
        connection, _ = server.accept()
        with connection:
            client.sendall(b"ping")
            client.shutdown(socket.SHUT_WR)
            assert connection.recv(9) == b"ping"
            assert connection.recv(9) == b""
            connection.sendall(b"pong")
        assert client.recv(9) == b"pong"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("command", ["cp", "scp"])
def test_files_are_copied_both_ways_after_the_process_has_exited(
    program: Program, command: str
) -> None:
    work = program.directory / "work"
    work.mkdir()
    learner = {"cmd": "mkdir out && echo weights > out/model.pt", "start_dir": str(work)}
    program.run("rl", {"crew": {"processes": {"learner": learner}}})
    assert program.ok(command, "rl", "learner:out/model.pt", ".") == ""
    assert (program.directory / "model.pt").read_text() == "weights\n"
    assert program.ok(command, "rl", "rl.yml", "crew/learner:") == ""
    assert (work / "rl.yml").read_bytes() == (program.directory / "rl.yml").read_bytes()


@pytest.mark.parametrize("command", ["visit", "url"])
def test_visit_prints_the_url(running: Program, command: str) -> None:
    url = f"http://{running.cluster.external_url('rl', 'web')}\n"
    assert running.ok(command, "rl", "web") == url


def test_addresses_of_exposed_services_are_shown(program: Program) -> None:
    web = {"cmd": FOREVER, "exposes": ["web", "board"]}
    output = program.ok("launch", program.file("served", {"a": web, "b": "true"}))
    web_url, board_url = (
        f"http://{program.cluster.external_url('served', name)}" for name in ("web", "board")
    )
    assert output.splitlines()[1:3] == [f"  web    {web_url}", f"  board  {board_url}"]
    assert program("ps", "served").stderr == f"web    {web_url}\nboard  {board_url}\n"
    assert program("ps", "served", "a").stderr == ""
    exposed = program.json("ps", "served")["exposed"]
    assert exposed == {"web": web_url[7:], "board": board_url[7:]}
    assert program.ok("visit", "served") == f"web    {web_url}\nboard  {board_url}\n"
    program.run("closed", {"a": "true"})
    assert "exposes no service" in program("visit", "closed").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cp", "none", "a:x", "y"], "no experiment 'none'"),
        (["cp", "rl", "a:x", "y"], "cannot copy 'a:x'"),
        (["cp", "rl", "c:x", "y"], "has no process 'c'"),
        (["forward", "rl", "wbe"], "has no process 'wbe'"),
        (["forward", "rl", "a"], "the port of process 'a' is missing"),
        (["forward", "rl", "a", "80:x"], "a port must be a number, or PORT:LOCAL, not '80:x'"),
        (["visit", "rl", "wbe"], "did you mean 'web'?"),
    ],
)
def test_errors_are_one_line(running: Program, words: list[str], message: str) -> None:
    done = running(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
