"""``render``: show the manifest of an experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.experiment_file.chosen_file import choose_file
from symphony.commandline.commands.experiment_file.experiment_options import (
    add_policies,
    add_subset,
    load_selected,
)
from symphony.commandline.commands.show_manifest import show_manifest
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(dry_run="with --with-secrets, do not write the file", json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_file(parser)
    add_subset(parser)
    add_policies(parser)
    parser.add_argument(
        "--with-secrets",
        metavar="FILE",
        help="write the manifest, including secret values, to FILE",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show the manifest of an experiment.

    Nothing is started. Settings that the backend does not support are listed as ignored. Secret
    values are not shown; --with-secrets FILE writes the manifest, including them, to a file.

    For example:
      symphony render rl.yml
      symphony render rl.yml -b local --json
      symphony render rl.yml learner
      symphony render rl.yml -b kube | kubectl diff -f -
    """
    choose_file(line, args)
    experiment = load_selected(line, args)
    if args.with_secrets is None:
        show_manifest(line.cluster.manifest(experiment), args.json)
        return OK
    _check_output_file(args.file, args.with_secrets)
    manifest = line.cluster.manifest(experiment)
    if args.dry_run:
        from symphony.commandline.output import dry_run

        print_note(dry_run.preview_secrets_file(manifest, args.with_secrets))
        return OK
    manifest.write(args.with_secrets)
    print_note(f"{line.prog}: wrote {args.with_secrets}; it contains secret values")
    return OK


def _check_output_file(experiment_file: str, output: str) -> None:
    """Raise `UsageError` if writing to ``output`` would overwrite the experiment file."""
    from pathlib import Path

    target = Path(output)
    if target.exists() and target.samefile(experiment_file):
        raise UsageError(
            f"{target} is the experiment file itself; choose another file for --with-secrets"
        )
