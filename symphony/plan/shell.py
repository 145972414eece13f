"""The argument vector of a process: its own command, or a shell that runs its lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.plan.resolve import PlannedProcess


def shell_line(cmds: Sequence[str]) -> str:
    """Join shell lines to one, in which each line runs only if those before it succeeded."""
    if len(cmds) == 1:
        return cmds[0]
    # The newline ends a comment, which would hide the closing brace otherwise.
    return " && ".join(f"{{ {line}\n}}" for line in cmds)


def argv(process: PlannedProcess, shell: str, *, first: Sequence[str] = ()) -> list[str]:
    """Return the argument vector that runs a process.

    It is the command of the process if that is enough, and otherwise ``shell`` with the lines to
    run. ``first`` are shell lines that run before the preamble. Return an empty list if the process
    has neither a command nor shell lines.
    """
    # A preamble line that fails ends the shell.
    preamble = [f"{{ {line}\n}} || exit" for line in (*first, *process.preamble_cmds)]
    if process.cmds is not None:
        script = "\n".join([*preamble, shell_line(process.cmds)])
        return [shell, "-c", script]
    if not process.command:
        return []
    command = [*process.command, *process.args]
    if not preamble:
        return command
    script = "\n".join([*preamble, 'exec "$@"'])
    # The argument after the script is the name of the shell, `$0`.
    return [shell, "-c", script, shell, *command]
