"""What verbs have in common: the arguments that several of them take."""

from __future__ import annotations

import argparse

from symphony.commandline.parsing.arguments import DRY_RUN_SERVER, parse_parameter
from symphony.commandline.parsing.dispatch import CommandLine


class Verbs(CommandLine):
    """A family of verbs: ``_add_<verb>`` says what it takes, ``action_<verb>`` does it.

    Each imports what it needs, so that a quick one stays quick.
    """

    def _add_experiment_name(
        self, parser: argparse.ArgumentParser, *, required: bool = True, positional: bool = True
    ) -> None:
        """Give a command ``args.experiment``: a word, or ``--experiment NAME``. What is not given is None."""
        text = "its name, or enough of it; . is the current one"
        if positional:
            parser.add_argument(
                "experiment", metavar="EXPERIMENT", nargs=None if required else "?", help=text
            )
        else:
            parser.add_argument(
                "-e", "--experiment", metavar="EXPERIMENT", required=required, help=text
            )

    def _add_component_arg(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "process", metavar="PROCESS", help="a process: its name, or group/name, or enough of it"
        )

    def _add_plain_dry_run(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done; change nothing"
        )

    def _accept_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Let a command that only looks take ``--dry-run``, as all commands do; it looks all the same."""
        parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)

    def _add_watch(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-w", "--watch", action="store_true", help="go on showing it, until Ctrl-C"
        )

    def add_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Give a command ``--dry-run``."""
        parser.add_argument(
            "--dry-run",
            action="store_const",
            const=True,
            default=False,
            help="show what would be done; change nothing",
        )
        parser.add_argument(
            DRY_RUN_SERVER,
            dest="dry_run",
            action="store_const",
            const="server",
            help="the same, with every object checked by the backend's server (also: --dry-run=server)",
        )

    def _add_file(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML, JSON, or Python with build(exp)")
        parser.add_argument(
            "--name", metavar="NAME", help="the experiment's name, in place of the file's"
        )
        parser.add_argument(
            "--set",
            dest="parameters",
            metavar="NAME=VALUE",
            action="append",
            type=parse_parameter,
            default=[],
            help="a parameter that the file declares; repeatable",
        )

    def _add_json(self, parser: argparse.ArgumentParser, what: str = "JSON") -> None:
        parser.add_argument("--json", action="store_true", help=f"print {what}")
