"""``backends``: list the backends."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""


def run(args: argparse.Namespace, _line: Line) -> int | None:
    """List the installed backends.

    For example:
      symphony backends
      symphony backends --json
    """
    from symphony.cluster.plugins import installed_backends
    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.views import BACKEND_COLUMNS, backend_dict, backend_row

    installed = installed_backends()
    if args.json:
        show_json([backend_dict(info) for info in installed])
    else:
        show_table(BACKEND_COLUMNS, [backend_row(info) for info in installed])
    return OK
