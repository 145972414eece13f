"""The experiment file that a command works on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment
    from symphony.model.document.load import LoadResult


def choose_file(line: Line, args: argparse.Namespace) -> None:
    """Set ``args.file`` to the experiment file.

    It is the argument FILE, the value of ``-f``, or else the experiment file of the working
    directory or its nearest parent. If ``-f`` is given, the argument FILE is the first PROCESS.
    """
    from symphony.commandline.commands.lookup.this_directory import require_file, unused_files
    from symphony.commandline.output.terminal import print_note
    from symphony.support.names import join_names

    if args.file_option is not None:
        if args.file is not None and not hasattr(args, "processes"):
            raise UsageError(f"two experiment files: {args.file_option} and {args.file}; name one")
        if args.file is not None:
            args.processes.insert(0, args.file)
        args.file = args.file_option
    elif args.file is None:
        file = require_file(f"{line.prog} {args.verb}")
        args.file = str(file)
        unused = unused_files(file)
        hint = f" (it precedes {join_names(unused)})" if unused else ""
        print_note(f"{line.prog}: {file}{hint}")


def load_experiment(line: Line, args: argparse.Namespace) -> Experiment:
    """Load the experiment from ``args.file`` with the given name and parameters.

    Raises `SpecError` or `NotFound` if the experiment cannot be loaded.
    """
    return load_with_errors(line, args).experiment_or_error()


def load_with_errors(line: Line, args: argparse.Namespace) -> LoadResult:
    """Do the same as `load_experiment`, but return the errors of a YAML or JSON file."""
    from pathlib import Path

    from symphony.commandline.commands.experiment_file import experiment_files

    file = Path(args.file)
    result = experiment_files.load_with_errors(
        line.cluster, file, args.name, dict(args.parameters), copy=args.copy
    )
    if not result.errors:
        line.loaded_file = file
    return result
