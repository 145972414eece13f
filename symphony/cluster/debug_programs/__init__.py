"""Programs that run in the environment of a process, with the process's Python.

They use only the standard library of old versions of Python, and are not imported by symphony.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def program(python: str, name: str, *arguments: str) -> list[str]:
    """Return the command that runs a program in this package."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return [python, "-c", source, *arguments]


def with_preamble(command: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Return a command that runs the lines of a preamble first, without their output."""
    if not lines:
        return list(command)
    preamble = [f"{{ {line}\n}} </dev/null >/dev/null 2>&1 || exit" for line in lines]
    return ["sh", "-c", "\n".join([*preamble, 'exec "$@"']), "sh", *command]
