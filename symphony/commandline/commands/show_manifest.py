"""Show the manifest that a launch creates."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.cluster import Manifest
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment


def show_dry_run(line: Line, experiment: Experiment, args: argparse.Namespace) -> None:
    """Print the manifest that a launch of the experiment would create, and the answer of the
    backend's server if it validates the manifest.
    """
    from symphony.commandline.output.terminal import print_note

    answers: list[str] = []
    manifest = line.cluster.dry_run(
        experiment,
        force=args.force,
        server=args.dry_run == "server",
        on_answer=answers.append,
    )
    show_manifest(manifest, args.json)
    for answer in answers:
        print_note(answer)


def show_manifest(manifest: Manifest, as_json: bool) -> None:
    """Print a manifest as text or as JSON."""
    from symphony.commandline.output.printing import show_json, show_text

    if as_json:
        show_json(manifest.to_dict())
    else:
        show_text(str(manifest))
