"""The work of the relay on a node; see `symphony_slurm.relay`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symphony.supervised.record import control_socket
from symphony.supervised.record.directory import RunDirectory
from symphony_slurm.job.step_variables import remove_step_variables

# The exit code of `exec-here` if the command was not run. The message is on standard error.
NOT_RUN_CODE = 125
# The pid of a process that is not running, in the arguments of `exec`.
NO_PID = 0
_CHUNK_BYTES = 1 << 16


def run(directory: str, kind: str, arguments: Sequence[str]) -> int:
    """Do the work of one kind, and return the exit code."""
    run = RunDirectory(Path(directory))
    if kind == "control":
        return _control(run)
    if kind == "forward":
        return _forward(arguments[0], int(arguments[1]))
    if kind in ("identify", "copy"):
        return _use_files(kind, arguments[0])
    return _exec(run, arguments[0], int(arguments[1]), arguments[2:], capture=kind == "exec")


def _control(run: RunDirectory) -> int:
    """Relay the standard streams to the supervisor. Print nothing if it has exited."""
    with contextlib.suppress(OSError), control_socket.connect(run) as channel:
        _relay(channel)
    return 0


def _exec(run: RunDirectory, name: str, pid: int, argv: Sequence[str], *, capture: bool) -> int:
    from symphony.supervised.access import exec_command
    from symphony.supervised.processes.spec import ProcessSpec

    remove_step_variables(os.environ)
    manifest = run.load_manifest()
    data = next(data for data in manifest["processes"] if data["name"] == name)
    spec = ProcessSpec.from_dict(data)
    env = exec_command.initial_environment(run, manifest, spec, None if pid == NO_PID else pid)
    result: dict[str, Any]
    code = NOT_RUN_CODE
    if env is None:
        result = {"error": "it belongs to another user"}
    else:
        try:
            done = exec_command.run(spec, list(argv), env, capture_output=capture)
        except exec_command.CommandNotRunError as exc:
            result = {"error": str(exc)}
        else:
            code = 128 - done.returncode if done.returncode < 0 else done.returncode
            result = {"exit_code": code, "stdout": done.stdout, "stderr": done.stderr}
    if capture:
        sys.stdout.write(json.dumps(result))
        return 0
    if "exit_code" not in result:
        sys.stderr.write(f"symphony: {result['error']}\n")
    return code


def _use_files(kind: str, argument: str) -> int:
    from symphony_slurm.job import node_copy

    result: dict[str, Any]
    if kind == "identify":
        result = {"identity": node_copy.identity(argument)}
    else:
        result = node_copy.copy_on_node(**json.loads(argument))
    sys.stdout.write(json.dumps(result))
    return 0


def _forward(host: str, port: int) -> int:
    try:
        connection = socket.create_connection((host, port))
    except OSError as exc:
        sys.stderr.write(f"cannot connect to {host}:{port}: {exc.strerror or exc}\n")
        return 1
    with connection:
        _relay(connection)
    return 0


def _relay(connection: socket.socket) -> None:
    """Relay the standard streams until the other side has closed the connection."""
    forth = threading.Thread(target=_copy_from_stdin, args=(connection,), daemon=True)
    forth.start()
    _copy_to_stdout(connection)


def _copy_from_stdin(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, _CHUNK_BYTES):
            connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def _copy_to_stdout(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := connection.recv(_CHUNK_BYTES):
            os.write(1, data)
    with contextlib.suppress(OSError):
        os.close(1)
