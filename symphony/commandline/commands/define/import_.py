"""``import``: convert a file of another program."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.command import Command
from symphony.errors import AlreadyExists, SpecError, unusable_path_errors, with_filename

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.importing import Imported

COMMAND = Command(
    changes=True,
    dry_run="with -o, do not write the file",
    json="the experiment and what it leaves out as JSON",
    no_tool="it only converts files, which agents can do themselves",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="compose file, process-compose file or Procfile; further files are merged into "
        "the first one",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the experiment to FILE (default: print it)",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="experiment name (default: the name in the file, else that of its directory)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing FILE")


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Convert a compose file, a process-compose file or a Procfile to an experiment file.

    The parts of the file that the experiment leaves out or changes are listed on standard
    error, each with the reason and what to do. Variables such as ${TAG:-1} become parameters.
    Addresses such as ${redis.addr} replace the host names of services.

    Several compose files are merged as compose does, and a file compose.override.yml is merged
    into a file compose.yml. Included files are read. A service with profiles is switched on by
    a parameter, for example with --set profile_debug=1.

    Without -o, the experiment is printed. Relative paths in the experiment are relative to the
    directory of the file that -o names, or to the current directory.

    For example:
      symphony import compose.yml -o shop.yml
      symphony import compose.yml compose.prod.yml -o shop.yml
      symphony import process-compose.yaml -o shop.yml
      symphony import Procfile --name shop -o shop.yml
      symphony import docker-compose.yaml --json
    """
    from symphony.importing import import_file

    source, *others = map(Path, args.files)
    output = None if args.output is None else Path(args.output)
    _refuse_wrong_output(source, output, force=args.force)
    directory = Path.cwd() if output is None else output.absolute().parent
    imported = import_file(source, *others, name=args.name, directory=directory)
    if args.json:
        _show_import(imported, output)
    for omission in imported.omissions:
        if not args.json:
            print_note(f"left out: {omission}")
    if output is not None and not args.dry_run:
        _write(imported, source, output, force=args.force)
        if not args.json:
            options = _options_of_launch(imported)
            print_note(f"wrote {output}; next: {line.prog} launch {output} {options}")
    elif output is not None and not args.json:
        print_note(f"would write {output}")
    elif output is None and not args.json:
        print_text(_text(imported, source).rstrip("\n"))
    return OK


def _options_of_launch(imported: Imported) -> str:
    """Return the options with which the experiment can be launched."""
    processes = imported.document["processes"].values()
    if not any(_needs_image(process) for process in processes):
        return "--follow"
    return "-b kube --build --follow" if "images" in imported.document else "-b kube --follow"


def _needs_image(process: Mapping[str, Any]) -> bool:
    """Return whether a process can run only in an image."""
    from symphony.plan.shell import runs_entry_point

    has_command = not process.keys().isdisjoint(("command", "cmd", "cmds"))
    return runs_entry_point(process.get("args", ()), has_command=has_command)


def _show_import(imported: Imported, output: Path | None) -> None:
    from symphony.commandline.output.printing import show_json

    show_json(
        {
            "file": None if output is None else str(output),
            "experiment": imported.document,
            "omissions": [omission.to_dict() for omission in imported.omissions],
        }
    )


def _refuse_wrong_output(source: Path, output: Path | None, *, force: bool) -> None:
    """Raise an error if the result cannot be written to ``output``."""
    if output is None:
        return
    if output.suffix not in (".yml", ".yaml"):
        raise SpecError(f"{output}: the name of the result must end with .yml or .yaml")
    if output.exists() and source.exists() and output.samefile(source):
        raise SpecError(f"{output}: the result would replace the imported file; give another -o")
    if not force and (output.is_symlink() or output.exists()):
        raise AlreadyExists(f"{output} exists; give another -o, or --force to replace it")


def _text(imported: Imported, source: Path) -> str:
    from symphony.model.document.files import to_yaml

    return f"# Converted from {source.name} by symphony import.\n{to_yaml(imported.document)}"


def _write(imported: Imported, source: Path, output: Path, *, force: bool) -> None:
    text = _text(imported, source)
    with with_filename(output), unusable_path_errors(output, "written"):
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
