"""Importing Procfiles, as foreman and honcho read them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.support.names import service_env_name, suggested_name

# Foreman and honcho set PORT to 5000 for the first process, to 5100 for the second, and so on.
FIRST_PORT = 5000
PORTS_PER_PROCESS = 100
ENV_FILE = ".env"

_LINE = re.compile(r"([A-Za-z0-9_-]+):\s*(.+)")
_PORT_VARIABLE = re.compile(r"\$(?:PORT\b|\{PORT[}:])")
# A line that sets PORT for its program, such as `RAILS_ENV=test PORT=3000 bin/rails server`.
_OWN_PORT = re.compile(r"(?:env\s+)?(?:\w+=\S*\s+)*?PORT=(\d+)\s")
# An option such as `-p 3000`, `--port=3000` or `--bind 0.0.0.0:3000`.
_PORT_OPTION = re.compile(r"\s(?:-p|--port|-b|--bind)(?:\s+|=)?(?:[\w.]*:)?(\d{2,5})(?=\s|$)")
# In a line with several commands, an option can belong to a client.
_SHELL_OPERATOR = re.compile(r"[;|&]")
_CLIENT = re.compile(r"(?:\S*/)?(?:\S+-cli|curl|docker|mkdir|mysql|nc|pg_isready|psql|ssh)\s")


def read(path: Path, *, name: str, directory: Path) -> Imported:
    """Return the experiment that a Procfile describes.

    Relative paths in the result are relative to ``directory``. Raises `NotFound` or `SpecError` if
    the file cannot be read.
    """
    from symphony.model.document.documents import read_text

    base = path.absolute().parent
    document: dict[str, Any] = {"name": name}
    if base != directory:
        document["start_dir"] = rebased(".", base, directory)
    first_port = FIRST_PORT
    if (base / ENV_FILE).is_file():
        document["env_file"] = rebased(ENV_FILE, base, directory)
        first_port = _port_in_env_file(base / ENV_FILE)
    processes: dict[str, Any] = {}
    document["processes"] = processes
    imported = Imported(document=document)
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        process = suggested_name(match[1]) if match else ""
        if match is None or not process:
            imported.omit(f"line {number}", "the line is not NAME: COMMAND", "correct the line")
            continue
        if process in processes:
            raise SpecError(
                f"{path}:{number}: there are two processes with the name {process!r}; rename one"
            )
        port = first_port + PORTS_PER_PROCESS * len(processes)
        processes[process] = _process(process, match[2], port)
        if process == "web" and port_in_line(match[2]) is None and not _uses_port(match[2]):
            imported.omit(
                f"line {number}",
                f"the program listens on port {port} only if it reads the variable PORT",
                "correct exposes if it listens on another port",
            )
    if not processes:
        raise SpecError(f"{path}: the file contains no line NAME: COMMAND; give a Procfile")
    imported.omit(
        path.name,
        "a Procfile names no container images",
        "add container_image to each process to run it on Kubernetes",
    )
    return imported


def _port_in_env_file(path: Path) -> int:
    from symphony.model.document import env_files

    text = env_files.read(path, os.environ).get("PORT", "")
    return int(text) if text.isdecimal() else FIRST_PORT


def _uses_port(line: str) -> bool:
    return _PORT_VARIABLE.search(line) is not None


def port_in_line(line: str) -> int | None:
    """Return the port on which the program of a line listens, or None if the line has none."""
    match = _OWN_PORT.match(line)
    if match is None and not _SHELL_OPERATOR.search(line) and not _CLIENT.match(line):
        match = _PORT_OPTION.search(line)
    port = 0 if match is None else int(match[1])
    return port if 0 < port < 1 << 16 else None


def _process(name: str, line: str, port: int) -> dict[str, Any]:
    """Return the description of a process.

    By convention, the process ``web`` listens on PORT even if its line does not contain the
    variable.
    """
    own_port = port_in_line(line)
    if own_port is not None:
        return {"cmd": line, "exposes": {name: own_port}}
    if name != "web" and not _uses_port(line):
        return {"cmd": line}
    preamble = f"export PORT=$SYMPH_{service_env_name(name)}_PORT"
    return {"preamble_cmds": preamble, "cmd": line, "exposes": {name: port}}
