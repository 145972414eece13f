"""``config``: show the configuration, and trust files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.command import Command
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True, json="JSON", no_tool="it can trust files, which only the user may decide"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "what",
        metavar="WHAT",
        nargs="?",
        choices=(*_CONFIG_VIEWS, *_TRUST_CHANGES),
        default="show",
        help="show (the default), path, schema, trust or untrust",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the file to trust or no longer trust (default: the project's file)",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show the effective configuration and where each value comes from.

    Each value is taken from the first of these sources that sets it: the command line,
    environment variables such as SYMPHONY_BACKEND, the profile, .symphony.yml in this directory
    or the nearest parent directory that contains one, the file that SYMPHONY_CONFIG names, and
    ~/.config/symphony/config.yml.

    config path prints the paths of the configuration files that are read, in the same order.
    config schema prints the path of the JSON Schema for experiment files, with which editors
    can complete and check these files.

    A project file from another person could run commands. Its context, kubeconfig, options and
    runs, and the settings that depend on them, are therefore ignored until you trust the file.
    A file that belongs to another user is ignored completely. config trust trusts the file
    until it changes, and prints the settings that need trust. config untrust withdraws the
    trust. In CI, set SYMPHONY_CONFIG to the path of the file instead.

    For example:
      symphony config show
      symphony config show --profile gke --json
      symphony config path
      symphony config trust
      symphony config trust ~/project/.symphony.yml
      symphony config untrust
      symphony config schema
    """
    if args.what in _TRUST_CHANGES:
        return _TRUST_CHANGES[args.what](args)
    if args.file is not None:
        raise UsageError(f"config {args.what} takes no file; see {line.prog} config --help")
    return _CONFIG_VIEWS[args.what](line, args.json)


def _show_settings(line: Line, as_json: bool) -> int:
    """Print each configured setting with its value and its source."""
    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.tables import Column

    configuration = line.configuration
    settings = configuration.settings()
    for file in configuration.untrusted_files():
        print_note(str(file))
    if as_json:
        show_json(
            [
                {"field": field, "value": value, "source": source}
                for field, (value, source) in settings.items()
            ]
        )
        return OK
    columns = (
        Column("FIELD"),
        Column("VALUE", flexible=True, least=24),
        Column("SOURCE", flexible=True, least=30),
    )
    rows = [
        [field, _format_value(value), source] for field, (value, source) in sorted(settings.items())
    ]
    show_table(columns, rows)
    return OK


def _format_value(value: Any) -> str:
    """Return a setting as text: a string is unchanged, and any other value is formatted as JSON."""
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _show_paths(line: Line, as_json: bool) -> int:
    """Print the paths of the configuration files in order of precedence, highest first."""
    import os

    from symphony.commandline.output.printing import show_json
    from symphony.config.locations import file_locations

    files = file_locations(os.environ)
    if as_json:
        untrusted = _untrusted_paths(line)
        rows: list[dict[str, Any]] = []
        for kind, path, exists in files:
            trusted = None if untrusted is None else path not in untrusted
            rows.append({"kind": kind, "path": str(path), "exists": exists, "trusted": trusted})
        show_json(rows)
        return OK
    existing = [path for _, path, exists in files if exists]
    for path in existing:
        print_text(str(path))
    if not existing:
        candidates = " or ".join(str(path) for _, path, _ in files)
        print_note(f"there is no configuration file; create {candidates}")
    return OK


def _untrusted_paths(line: Line) -> set[Path] | None:
    """Return the paths of the files that are ignored, at least in part. Return None if a file is
    invalid.
    """
    try:
        return {file.path for file in line.configuration.untrusted_files()}
    except SymphonyError:
        return None


def _show_schema(_line: Line, as_json: bool) -> int:
    """Print the path of the JSON Schema for experiment files."""
    from symphony.commandline.output.printing import show_json
    from symphony.model.document import schema

    path = str(schema.path())
    if as_json:
        show_json({"path": path})
    else:
        print_text(str(path))
    return OK


def _trust(args: argparse.Namespace) -> int:
    """Trust a project file, and print the settings for which this makes a difference."""
    import os

    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.tables import Column
    from symphony.config import trust

    path = _project_file(args.file)
    source = trust.trust(path, os.environ, dry_run=args.dry_run)
    settings = trust.settings_that_need_trust(source)
    if args.json:
        rows = [{"field": field, "value": value} for field, (value, _) in settings.items()]
        show_json({"path": str(path), "settings": rows})
        return OK
    print_text(f"would trust {path}" if args.dry_run else f"trusted {path}")
    if settings:
        columns = (Column("FIELD"), Column("VALUE", flexible=True, least=24))
        show_table(
            columns, [[field, _format_value(value)] for field, (value, _) in settings.items()]
        )
    return OK


def _untrust(args: argparse.Namespace) -> int:
    """Stop trusting a project file."""
    import os

    from symphony.commandline.output.printing import show_json
    from symphony.config import trust

    path = _project_file(args.file)
    was_trusted = trust.withdraw(path, os.environ, dry_run=args.dry_run)
    if args.json:
        show_json({"path": str(path), "was_trusted": was_trusted})
    elif was_trusted:
        print_text(
            f"would no longer trust {path}" if args.dry_run else f"no longer trusted: {path}"
        )
    else:
        print_note(f"{path} was not trusted")
    return OK


def _project_file(given: str | None) -> Path:
    """Return the file that the user named, or the project's file. Raises `NotFound` if there is no
    project file.
    """
    from symphony.config import file_formats, locations
    from symphony.support.directories.home import home_directory

    if given is not None:
        return Path(given).absolute()
    directory = locations.working_directory()
    found = [] if directory is None else locations.project_files(directory, home_directory())
    if not found:
        raise NotFound(
            f"there is no {locations.PROJECT_FILE_NAMES[0]} in this directory or its parents; "
            "name a file"
        )
    return file_formats.only_file(found)


_CONFIG_VIEWS = {"show": _show_settings, "path": _show_paths, "schema": _show_schema}
_TRUST_CHANGES = {"trust": _trust, "untrust": _untrust}
