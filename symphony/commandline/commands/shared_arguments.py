"""The arguments that several commands share."""

from __future__ import annotations

import argparse

from symphony.commandline.commands.lookup.resolve_names import EXPERIMENT
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.arguments import (
    DRY_RUN_SERVER,
    check_since,
    parse_parameter,
    parse_seconds,
)
from symphony.commandline.parsing.command import DEFAULT_DRY_RUN


def add_experiment_name(
    parser: argparse.ArgumentParser, *, required: bool = True, positional: bool = True
) -> None:
    """Add an argument that sets ``args.experiment``.

    The argument is positional, or ``-e`` or ``--experiment`` if ``positional`` is false. If
    the argument is optional and not given, ``args.experiment`` is None.
    """
    text = "experiment name"
    if positional:
        parser.add_argument(
            "experiment", metavar="EXPERIMENT", nargs=None if required else "?", help=text
        )
    else:
        parser.add_argument(
            "-e", "--experiment", metavar="EXPERIMENT", required=required, help=text
        )


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Add an optional argument that `find_experiment` reads."""
    parser.add_argument(
        EXPERIMENT,
        metavar="EXPERIMENT",
        nargs="?",
        help="experiment name (default: the experiment that was launched from this directory)",
    )


def add_processes(parser: argparse.ArgumentParser, *, nargs: str = "*") -> None:
    """Add positional arguments that set ``args.processes`` and select processes."""
    parser.add_argument(
        "processes",
        metavar="PROCESS",
        nargs=nargs,
        help="process, group, or pattern such as 'agent-*'"
        + (" (default: all processes)" if nargs == "*" else ""),
    )


def add_process(parser: argparse.ArgumentParser) -> None:
    """Add a positional argument that sets ``args.process``."""
    parser.add_argument(
        "process",
        metavar="PROCESS",
        help="process name, or group/name",
    )


def add_file(
    parser: argparse.ArgumentParser,
    *,
    metavar: str = "FILE",
    text: str = "YAML or JSON file, or Python file with build(exp)",
) -> None:
    """Add the arguments for the experiment file, the experiment's name and its parameters.

    The file can be omitted or be the value of an option; see `choose_file`.
    """
    default = " (default: the experiment file of this directory)"
    parser.add_argument("file", metavar=metavar, nargs="?", help=f"{text}{default}")
    add_file_option(parser)
    parser.add_argument("--name", metavar="NAME", help="override the experiment name in the file")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="use a copy of the experiment that belongs to this directory or Git worktree, "
        "called NAME-DIRECTORY",
    )
    parser.add_argument(
        "--set",
        dest="parameters",
        metavar="NAME=VALUE",
        action="append",
        type=parse_parameter,
        default=[],
        help="set a parameter that the file declares; repeatable",
    )


def add_file_option(parser: argparse.ArgumentParser) -> None:
    """Add ``-f``, with which other programs name the file. The help omits it."""
    parser.add_argument("-f", "--file", dest="file_option", metavar="FILE", help=argparse.SUPPRESS)


def add_queue(parser: argparse._ActionsContainer) -> None:
    """Add ``--queue``."""
    parser.add_argument(
        "--queue",
        action="store_true",
        help="on this machine, wait until enough GPUs are free, in turn with other such launches",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run`` and ``--dry-run-server``.

    ``args.dry_run`` is False, True or ``"server"``. `symphony.Cluster.launch` accepts the same
    values for ``dry_run``.
    """
    parser.add_argument(
        "--dry-run",
        action="store_const",
        const=True,
        default=False,
        help=DEFAULT_DRY_RUN,
    )
    parser.add_argument(
        DRY_RUN_SERVER,
        dest="dry_run",
        action="store_const",
        const="server",
        help="also have the backend's server validate every object (or: --dry-run=server)",
    )


def add_client_dry_run(
    parser: argparse.ArgumentParser,
    text: str = DEFAULT_DRY_RUN,
) -> None:
    """Add ``--dry-run`` to a command that has nothing for a server to validate."""
    parser.add_argument("--dry-run", action="store_true", help=text)


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add ``--watch``."""
    parser.add_argument("-w", "--watch", action="store_true", help="refresh the table until Ctrl-C")


def add_timeout(parser: argparse.ArgumentParser, condition: str = "") -> None:
    """Add ``--timeout``. In its help text, ``condition`` is the option that it requires."""
    text = "give up after this time, in seconds or with a unit, such as 5m"
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=parse_seconds,
        help=f"with {condition}, {text}" if condition else text,
    )


def add_show_secrets(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--show-secrets``."""
    parser.add_argument(
        "--show-secrets",
        action="store_true",
        help="show the values of variables and parameters whose names suggest a secret",
    )


def add_run_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--run``."""
    parser.add_argument(
        "--run",
        action="store_true",
        help="EXPERIMENT is a run instead, which may have been deleted; see history",
    )


def check_timeout(args: argparse.Namespace) -> None:
    """Raise `UsageError` if ``--timeout`` is given without ``--wait``."""
    if args.timeout is not None and not args.wait:
        raise UsageError("--timeout limits how long --wait waits; add --wait")


def add_since(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--since``, which limits the output to ``what`` since a time."""
    parser.add_argument(
        "-s",
        "--since",
        metavar="TIME",
        type=check_since,
        help=f"show only {what} since this time: 90s, 5m or 2h ago, or an ISO 8601 time",
    )


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--now`` and ``--grace``."""
    add_now(parser)
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=parse_seconds,
        help="grace period before processes are killed, instead of their own, such as 5s",
    )


def add_now(parser: argparse.ArgumentParser) -> None:
    """Add ``--now``."""
    parser.add_argument(
        "--now", action="store_true", help="kill the processes, without a grace period"
    )


def add_run(parser: argparse.ArgumentParser, dest: str = "run") -> None:
    """Add a positional argument that sets ``dest`` to the name of a run."""
    parser.add_argument(
        dest, metavar="RUN", help="run, the beginning of its identifier, or an experiment"
    )
