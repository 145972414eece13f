"""The argument vector of a process: its own command, or a shell that runs its shell lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.plan.plan import PlannedProcess


def shell_line(cmds: Sequence[str]) -> str:
    """Join shell lines into one command that runs each line only if all previous lines succeed."""
    if len(cmds) == 1:
        return cmds[0]
    # The newline ends a comment that would otherwise hide the closing brace.
    return " && ".join(f"{{ {line}\n}}" for line in cmds)


def command_argv(command: Sequence[str] | str, shell: str) -> list[str]:
    """Return the argument vector of a command, which is a list of arguments or a shell line."""
    return [shell, "-c", command] if isinstance(command, str) else list(command)


def runs_entry_point(args: Sequence[str], *, has_command: bool) -> bool:
    """Return whether only the entry point of an image can be the program of a process.

    ``args`` are its arguments. ``has_command`` states whether it has a command or shell lines.
    """
    return not has_command and (not args or args[0].startswith("-"))


def argv(process: PlannedProcess, shell: str, *, first: Sequence[str] = ()) -> list[str]:
    """Return the argument vector that runs a process.

    The result is the process's own command if no shell is needed, and otherwise ``shell`` with a
    script that contains the lines to run. ``first`` contains shell lines that run before the
    preamble. Without an image, there is no entry point, so ``args`` without ``command`` are the
    program and its arguments. The result is an empty list if the process has none of these.
    """
    # If a preamble line fails, the shell exits.
    preamble = [f"{{ {line}\n}} || exit" for line in (*first, *process.preamble_cmds)]
    if process.cmds is not None:
        script = "\n".join([*preamble, shell_line(process.cmds)])
        return [shell, "-c", script]
    command = [*(process.command or ()), *process.args]
    if not command:
        return []
    if not preamble:
        return command
    script = "\n".join([*preamble, 'exec "$@"'])
    # The argument after the script becomes `$0`, the name of the shell.
    return [shell, "-c", script, shell, *command]
