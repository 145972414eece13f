"""``completion``: print a script for shell completion."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(no_tool="it prints a script for a shell")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from symphony.commandline.parsing.completion_scripts import SHELLS

    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Print a shell completion script.

    The script completes commands, options, and the names of experiments, processes and
    services.

    For example:
      eval "$(symphony completion bash)"
      eval "$(symphony completion zsh)"
      symphony completion fish | source
    """
    from symphony.commandline.output.printing import show_text
    from symphony.commandline.parsing.completion_scripts import completion_script

    show_text(completion_script(args.shell, line.prog))
    return OK
