"""``symphony import``: the written file runs, and the command reports what it leaves out."""

from __future__ import annotations

import socket

import pytest

from tests.cli.conftest import Program

SERVER = """\
import http.server, os
address = ("127.0.0.1", int(os.environ["PORT"]))
http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler).serve_forever()
"""
CONNECT = """\
import os, socket
socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
"""
CLIENT = """\
import os, urllib.request
answer = urllib.request.urlopen(os.environ["STORE_URL"], timeout=60)
print(answer.status, os.environ["LEVEL"], os.environ["MODE"])
"""
COMPOSE = """\
services:
  client:
    build: .
    command: python3 client.py
    env_file: client.env
    environment: {{STORE_URL: "http://store:{port}/"}}
    depends_on: {{store: {{condition: service_healthy}}}}
    volumes: ["./data:/data"]
  store:
    image: store:1
    command: python3 server.py
    ports: ["{port}"]
    environment: {{PORT: "{port}"}}
    healthcheck: {{test: [CMD, python3, connect.py], interval: 1s}}
"""
OVERRIDE = """\
services: {client: {environment: {MODE: prod}}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_an_imported_compose_file_runs(program: Program) -> None:
    directory = program.directory
    (directory / "server.py").write_text(SERVER)
    (directory / "client.py").write_text(CLIENT)
    (directory / "connect.py").write_text(CONNECT)
    (directory / "client.env").write_text("LEVEL=info")
    (directory / "compose.yml").write_text(COMPOSE.format(port=free_port()))
    (directory / "prod.yml").write_text(OVERRIDE)
    done = program("import", "compose.yml", "prod.yml", "--name", "shop", "-o", "shop.yml")
    assert (done.returncode, done.stdout) == (0, "")
    assert "left out: services.client.volumes: local and tmux do not mount /data, " in done.stderr
    assert done.stderr.endswith("wrote shop.yml; next: symphony launch shop.yml --follow\n")
    assert program("check", "shop.yml", "--offline").returncode == 0
    program.ok("launch", "shop.yml", "--wait", "ready")
    assert "200 info prod" in program("logs", "-f", "shop", "client").stdout


def test_the_result_is_printed_or_written(program: Program) -> None:
    (program.directory / "Procfile").write_text("worker: echo hi")
    text = program("import", "Procfile", "--name", "p").stdout
    assert text == (
        "# Converted from Procfile by symphony import.\n"
        "name: p\nprocesses:\n  worker:\n    cmd: echo hi\n"
    )
    data = program.json("import", "Procfile", "--name", "p", "-o", "p.yml")
    assert data["experiment"] == {"name": "p", "processes": {"worker": {"cmd": "echo hi"}}}
    assert [omission["where"] for omission in data["omissions"]] == ["Procfile"]
    assert (program.directory / "p.yml").read_text() == text
    again = program("import", "Procfile", "-o", "p.yml")
    assert (again.returncode, "p.yml exists; give another -o, or --force" in again.stderr) == (
        2,
        True,
    )
    assert program("import", "Procfile", "-o", "p.yml", "--force").returncode == 0
    for output in ("Procfile", "p.txt"):
        assert "must end with .yml" in program("import", "Procfile", "-o", output).stderr


@pytest.mark.parametrize(
    ("services", "options"),
    [
        ("{p: {image: x, command: run}}", "--follow"),
        ("{p: {image: x, command: run}, q: {image: y}}", "-b kube --follow"),
        ("{p: {image: x, command: --run}}", "-b kube --follow"),
        ("{p: {build: .}}", "-b kube --build --follow"),
    ],
)
def test_the_next_command_can_run_all_processes(
    program: Program, services: str, options: str
) -> None:
    (program.directory / "compose.yml").write_text(f"services: {services}")
    done = program("import", "compose.yml", "-o", "e.yml")
    assert done.stderr.endswith(f"wrote e.yml; next: symphony launch e.yml {options}\n")
