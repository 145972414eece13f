"""The connection of an agent to its supervisor."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import symphony_slurm.agent


def test_program_that_is_not_the_supervisor_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"path": sys.path}))
    (tmp_path / "token").write_bytes(b"token")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-I", "-S", symphony_slurm.agent.__file__]
        agent = subprocess.Popen(
            [*command, str(tmp_path), "127.0.0.1", str(port)], stderr=subprocess.PIPE, text=True
        )
        connection, _ = other.accept()
        with connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
            _, message = agent.communicate(timeout=60)
    assert message.endswith(f": port {port} of 127.0.0.1 is not the supervisor of this run\n")
    assert len(message.splitlines()) == 1
    assert agent.returncode == 1
