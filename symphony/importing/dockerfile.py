"""The entry point, the command and the ports in a Dockerfile."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, slots=True)
class Program:
    """The entry point, the command and the TCP ports of an image.

    They are empty if they are not known.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    shell: tuple[str, ...] = _SHELL


def program(text: str, target: str = "") -> Program:
    """Return what the image of a Dockerfile runs.

    ``target`` is the name or the number of a stage, by default the last one. What the base image
    runs is not known.
    """
    stages: dict[str, Program] = {}
    current, names = Program(), ("", "")
    inherited: tuple[str, ...] = ()
    number = 0
    for instruction, value in _instructions(text):
        if instruction == "FROM":
            match = _FROM.match(value)
            base, name = (match[1], match[2] or "") if match else ("", "")
            current = stages.get(base.lower(), Program())
            inherited = current.command
            names = (str(number), name.lower())
            number += 1
        elif instruction == "ENTRYPOINT":
            # An entry point removes the command of the base image.
            command = () if current.command == inherited else current.command
            current = replace(current, entrypoint=_words(value, current), command=command)
        elif instruction == "CMD":
            current = replace(current, command=_words(value, current))
        elif instruction == "EXPOSE":
            current = replace(current, ports=(*current.ports, *_ports(value)))
        elif instruction == "SHELL":
            current = replace(current, shell=_words(value, current))
        stages.update(dict.fromkeys(filter(None, names), current))
    return stages.get(target.lower(), Program()) if target else current


def _instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, without comments and here documents."""
    result: list[tuple[str, str]] = []
    parts: list[str] = []
    end_of_document = ""
    for line in text.splitlines():
        if end_of_document:
            end_of_document = "" if line.strip() == end_of_document else end_of_document
            continue
        if line.lstrip().startswith("#"):
            continue
        stripped = line.rstrip()
        parts.append(stripped.removesuffix("\\"))
        if stripped.endswith("\\"):
            continue
        match = _INSTRUCTION.fullmatch(" ".join(parts))
        parts = []
        if match is not None:
            result.append((match[1].upper(), match[2].strip()))
            document = _HERE_DOCUMENT.search(match[2])
            end_of_document = document[2] if document else ""
    return result


def _words(value: str, program: Program) -> tuple[str, ...]:
    """Return the words of a command, which is a list in JSON or a shell line."""
    try:
        words = json.loads(value) if value.startswith("[") else None
    except ValueError:
        words = None
    if isinstance(words, list):
        return tuple(map(str, words))
    return (*program.shell, value)


def _ports(value: str) -> list[int]:
    """Return the TCP ports in ``EXPOSE``, without those that are variables."""
    ports = [port.lower().removesuffix("/tcp") for port in value.split()]
    return [int(port) for port in ports if port.isdecimal()]
