"""The commands that concern the installation: ``config``, ``backends`` and ``completion``."""

from __future__ import annotations

import argparse
from typing import Any

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note


class ConfigCommands(BaseCommands):
    """The ``config``, ``backends`` and ``completion`` commands."""

    def _add_config(self) -> None:
        parser = self.add_subparser("config")
        parser.add_argument(
            "what",
            metavar="WHAT",
            nargs="?",
            choices=tuple(_CONFIG_VIEWS),
            default="show",
            help="show (the default), path or schema",
        )
        self._add_hidden_dry_run(parser)
        self._add_json(parser)

    def action_config(self, args: argparse.Namespace) -> int | None:
        """Show the effective configuration and where each value comes from.

        Each value is taken from the first of these sources that sets it: the command line,
        environment variables such as SYMPHONY_BACKEND, the profile, .symphony.yml in this directory
        or the nearest parent directory that contains one, the file that SYMPHONY_CONFIG names, and
        ~/.config/symphony/config.yml.

        config path prints the paths of the configuration files that are read, in the same order.
        config schema prints the path of the JSON Schema for experiment files, with which editors
        can complete and check these files.

        For example:
          symphony config show
          symphony config show --profile gke --json
          symphony config path
          symphony config schema
        """
        return _CONFIG_VIEWS[args.what](args.json)

    def _add_backends(self) -> None:
        parser = self.add_subparser("backends")
        self._add_hidden_dry_run(parser)
        self._add_json(parser)

    def action_backends(self, args: argparse.Namespace) -> int | None:
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

    def _add_completion(self) -> None:
        from symphony.commandline.parsing.completion_scripts import SHELLS

        parser = self.add_subparser("completion")
        self._add_hidden_dry_run(parser)
        parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))

    def action_completion(self, args: argparse.Namespace) -> int | None:
        """Print a shell completion script.

        The script completes commands, options, and the names of experiments, processes and
        services.

        For example:
          eval "$(symphony completion bash)"
          eval "$(symphony completion zsh)"
          symphony completion fish | source
        """
        from symphony.commandline.parsing.completion_scripts import completion_script

        print(completion_script(args.shell, self.prog), end="")
        return OK


def _show_settings(as_json: bool) -> int:
    """Print each configured setting with its value and its source."""
    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.tables import Column
    from symphony.config import SymphonyConfig

    settings = SymphonyConfig().settings()
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


def _show_paths(as_json: bool) -> int:
    """Print the paths of the configuration files in order of precedence, highest first."""
    import os

    from symphony.commandline.output.printing import show_json
    from symphony.config.locations import file_locations

    files = file_locations(os.environ)
    if as_json:
        show_json(
            [{"kind": kind, "path": str(path), "exists": exists} for kind, path, exists in files]
        )
        return OK
    existing = [path for _, path, exists in files if exists]
    for path in existing:
        print(path)
    if not existing:
        candidates = " or ".join(str(path) for _, path, _ in files)
        print_note(f"there is no configuration file; create {candidates}")
    return OK


def _show_schema(as_json: bool) -> int:
    """Print the path of the JSON Schema for experiment files."""
    from symphony.commandline.output.printing import show_json
    from symphony.model import schema

    path = str(schema.path())
    if as_json:
        show_json({"path": path})
    else:
        print(path)
    return OK


_CONFIG_VIEWS = {"show": _show_settings, "path": _show_paths, "schema": _show_schema}
