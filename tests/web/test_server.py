"""The command and its server, without a browser."""

from __future__ import annotations

import contextlib
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import FOREVER, Program, cleaned_up
from tests.web.client import Client
from tests.web.server import Server, serving


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Client, Server]]:
    with cleaned_up(Program(tmp_path_factory.mktemp("server"))) as program:
        program.launch("rl", {"learner": f"seq 30000; {FOREVER}", "agent": FOREVER})
        with serving(program) as server:
            yield program, Client(server.address), server


def test_the_stream_begins_with_the_state_and_continues(
    world: tuple[Program, Client, Server],
) -> None:
    program, client, _ = world
    names = next(message["experiments"] for message in client.stream())
    assert [(row["name"], row["backend"]) for row in names] == [("rl", "local")]
    stream = client.stream(backend="local", experiment="rl", output="1", lines="100")
    lines: list[str] = []
    for message in stream:
        lines += [text for *_, text in message.get("output", {}).get("lines", [])]
        if lines and lines[-1] == "30000":
            break
    program.ok("stop", "rl", "agent", "--now")
    for message in stream:
        states = {row["name"]: row["state"] for row in message.get("processes", [])}
        if states.get("agent") == "stopped":
            break


def test_whole_logs_are_downloaded_in_pieces(world: tuple[Program, Client, Server]) -> None:
    _, client, _ = world
    query = {"backend": "local", "experiment": "rl", "process": "learner"}
    response = client.open("log", **query, download="1")
    assert response.headers["Content-Disposition"] == 'attachment; filename="learner.log"'
    assert response.headers["Content-Type"].startswith("text/plain")
    assert response.body.split() == [b"%d" % number for number in range(1, 30001)]
    assert client.open("log", **query, tail="2").body == b"29999\n30000\n"


def test_connections_without_a_request_do_not_block_the_page(
    world: tuple[Program, Client, Server],
) -> None:
    _, client, server = world
    stream = client.stream(backend="local", experiment="rl")
    assert next(stream)["reset"]
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            address = ("127.0.0.1", server.data["port"])
            half_open = stack.enter_context(socket.create_connection(address))
            half_open.sendall(b"GET / HTTP/1.1\r\n")
        assert client.get("session")
        assert next(stream)


def test_errors_are_one_line(world: tuple[Program, Client, Server]) -> None:
    _, client, _ = world
    rl = {"backend": "local", "experiment": "rl"}
    assert "there is no control 'explode'" in client.control(**rl, action="explode")["error"]
    assert "must be a list" in client.control(**rl, action="stop", processes="agent")["error"]
    stop = client.control(**rl, action="stop", processes=["agnt"], confirmed=True)
    assert "no process or group 'agnt'" in stop["error"]
    assert "does not expose 'board'" in client.post("visit", **rl, service="board")["error"]
    assert "service must be text" in client.post("visit", **rl, service=5)["error"]
    assert "no value 'process'" in client.get("log", **rl)["error"]
    assert "no run 'x'" in client.get("run", run="x")["error"]
    unknown = client.get("process", backend="x", experiment="rl", process="a")
    assert "no backend 'x'" in unknown["error"]
    problem = next(client.stream(backend="x", experiment="rl"))["problem"]
    assert "no backend 'x'" in problem
    gone = next(
        message["experiment"]["gone"]
        for message in client.stream(backend="local", experiment="absent")
        if message.get("experiment", {}).get("gone")
    )
    assert "no experiment 'absent'" in gone


def test_ctrl_c_ends_the_server_and_its_streams_but_no_experiment(
    world: tuple[Program, Client, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _, _ = world
    monkeypatch.setitem(program.env, "SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22")
    server = Server(program, "rl", "--read-only")
    client = Client(server.address)
    stream = client.stream(backend="local", experiment="rl")
    assert next(stream)["reset"]
    refused = client.control(backend="local", experiment="rl", action="stop", confirmed=True)
    assert "--read-only" in refused["error"]
    visit = client.post("visit", backend="local", experiment="rl", service="board")
    assert "--read-only" in visit["error"]
    server.process.send_signal(signal.SIGINT)
    assert list(stream) is not None
    output, errors = server.process.communicate(timeout=60)
    assert (server.process.returncode, output) == (130, "")
    tunnel = "ssh -N -L {0}:127.0.0.1:{0} 10.0.0.2".format(server.data["port"])
    assert server.data["tunnel"] == tunnel
    assert errors == f"on your machine, run: {tunnel}\nserving the page; press Ctrl-C to stop\n"
    assert not program.cluster.describe_experiment("rl").ended


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program("ui", "--no-open", "--port", port)
    assert done.returncode == 3
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    done = program("ui", "--no-open", "--port", "65536")
    assert (done.returncode, "at most 65535" in done.stderr) == (2, True)


def test_the_browser_gets_the_token_in_a_private_file(tmp_path: Path) -> None:
    """The arguments of a process are public."""
    program = Program(tmp_path)
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{opened}.part; mv {opened}.part {opened}\n')
    browser.chmod(0o700)
    program.env.update(BROWSER=f"{browser} %s", DISPLAY=":9", XDG_RUNTIME_DIR=str(tmp_path))
    program.env.pop("SSH_CONNECTION", None)
    program.env.pop("SSH_TTY", None)
    process = program.popen("ui", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    address = process.stdout.readline().strip()
    while not opened.exists():
        assert process.poll() is None
    page = opened.read_text().strip()
    path = Path(page.removeprefix("file://"))
    assert address.partition("token=")[2] not in page
    assert address in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    process.terminate()
    process.communicate(timeout=60)
    assert not path.exists()
