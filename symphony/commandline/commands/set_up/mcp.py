"""``mcp``: offer the commands to coding agents."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import is_terminal, print_note
from symphony.commandline.parsing.arguments import parse_seconds
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster.backend.scope import Scope
    from symphony.commandline.commands.line import Line
    from symphony.commandline.tools.descriptions import Tool

COMMAND = Command(json="the tools as JSON; serve nothing", no_tool="it is the server of the tools")

# Many clients cancel a call after 60 seconds.
DEFAULT_SECONDS = 50
ANSWER_BYTES = 20_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--read-only", action="store_true", help="offer only the commands that change nothing"
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="only experiments that were launched from this directory or Git worktree",
    )
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        default=[],
        help="only experiments whose names match, such as 'rl-*'; repeatable",
    )
    parser.add_argument(
        "--directory",
        metavar="DIRECTORY",
        help="directory in which the commands run (default: the current directory)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        type=parse_seconds,
        default=DEFAULT_SECONDS,
        help=f"longest time of a call (default: {DEFAULT_SECONDS} s)",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the tools; serve nothing", dest="list_tools"
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Offer the commands as tools to coding agents, with the Model Context Protocol.

    An agent starts this server and speaks with it on standard input and output. The tools are
    the commands that end and need no terminal, with the same arguments. --read-only, --here,
    --only and -b limit which experiments the agent can see and change. They do not confine the
    programs of an experiment, which have all rights of the user. Experiments keep running when
    the server ends.

    For example:
      symphony mcp --list
      symphony mcp --read-only
      symphony mcp --here --directory ~/project
      symphony mcp --only 'rl-*' -b local
    """
    from symphony.commandline.commands.table import TABLE
    from symphony.commandline.tools.descriptions import find_tools

    if line.has_custom_cluster:
        # Each call runs the program `symphony`, which would find other experiments.
        raise UsageError(f"{line.prog} has a cluster of its own; use: symphony mcp")
    if args.directory is not None:
        os.chdir(args.directory)
    tools = find_tools(line, TABLE)
    if args.list_tools or args.json:
        _show([tool for tool in tools.values() if not (args.read_only and tool.changes)], args)
        return OK
    try:
        from symphony.commandline.tools.tool_server import Limits, ToolServer
    except ModuleNotFoundError as exc:
        raise _missing_library(exc) from exc
    limits = Limits(seconds=args.time_limit, size=ANSWER_BYTES)
    # The words are quoted for a shell.
    options = shlex.split(" ".join(line.cluster_arguments))
    server = ToolServer(tools, TABLE, _scope(args), limits, options)
    if args.dry_run:
        print_note("would serve the tools on standard input and output")
        return OK
    if is_terminal(sys.stdin):
        print_note("waiting for messages of a client on standard input; press Ctrl-C to stop")
    return INTERRUPTED if server.run() else OK


def _scope(args: argparse.Namespace) -> Scope:
    from pathlib import Path

    from symphony.archive.origin import find_origin
    from symphony.cluster.backend.scope import Scope

    return Scope(
        patterns=tuple(args.only),
        origin=str(find_origin(Path.cwd())) if args.here else None,
        read_only=args.read_only,
    )


def _show(tools: list[Tool], args: argparse.Namespace) -> None:
    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.tables import Column
    from symphony.commandline.parsing.arguments import summary_of

    if args.json:
        show_json([_as_dict(tool) for tool in tools])
        return
    answers = {True: "yes", False: "no"}
    rows = [[tool.name, answers[tool.changes], summary_of(tool.description)] for tool in tools]
    columns = [Column("NAME"), Column("CHANGES"), Column("SUMMARY", flexible=True, prose=True)]
    show_table(columns, rows)


def _as_dict(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "changes": tool.changes,
        "schema": tool.schema,
    }


def _missing_library(error: ModuleNotFoundError) -> Exception:
    """Return the error for a library of the extra that is not installed."""
    from symphony.errors import PluginError
    from symphony.support.install_hints import install_command

    return PluginError(
        f"'symphony mcp' needs the package {error.name!r}; install it with: "
        f"{install_command('agents')}"
    )
