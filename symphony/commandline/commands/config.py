"""The verb about the configuration: config show, config path, config schema."""

from __future__ import annotations

import argparse
from typing import Any

from symphony.commandline.commands.shared_arguments import Verbs
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note

WHAT = ("show", "path", "schema")


class ConfigVerbs(Verbs):
    """config."""

    def _add_config(self) -> None:
        parser = self.add_subparser("config")
        parser.add_argument(
            "what",
            metavar="WHAT",
            nargs="?",
            choices=WHAT,
            default="show",
            help="show (the default), path or schema",
        )
        self._accept_dry_run(parser)
        self._add_json(parser)

    def action_config(self, args: argparse.Namespace) -> int | None:
        """Show what is configured, and where it was said.

        What is said first in this order holds: the command line, variables such as SYMPHONY_BACKEND, the profile,
        .symphony.yml of this folder or the nearest above it, the file that SYMPHONY_CONFIG names, and your own
        (~/.config/symphony/config.yml). config path prints the files that are read, those first that win, and config
        schema the JSON Schema of an experiment's file, by which an editor completes and checks it.

        For example:
          symphony config show
          symphony config show --profile gke --json
          symphony config path
          symphony config schema
        """
        tell = {"show": _settings, "path": _paths, "schema": _schema}[args.what]
        return tell(args.json)


def _settings(as_json: bool) -> int:
    from symphony.commandline.output.printing import show_json, show_table
    from symphony.commandline.output.tables import Column
    from symphony.config import SymphonyConfig

    found = SymphonyConfig().settings()
    if as_json:
        show_json(
            [
                {"field": name, "value": value, "source": source}
                for name, (value, source) in found.items()
            ]
        )
        return OK
    columns = (
        Column("FIELD"),
        Column("VALUE", flexible=True, least=24),
        Column("SOURCE", flexible=True, least=30),
    )
    show_table(
        columns, [[name, _shown(value), source] for name, (value, source) in sorted(found.items())]
    )
    return OK


def _shown(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _paths(as_json: bool) -> int:
    import os

    from symphony.commandline.output.printing import show_json
    from symphony.config.sources import places

    found = places(os.environ)
    if as_json:
        show_json(
            [{"kind": kind, "path": str(path), "exists": there} for kind, path, there in found]
        )
        return OK
    for _, path, there in found:
        if there:
            print(path)
    if not any(there for _, _, there in found):
        print_note(
            f"there is no configuration file; it may be {' or '.join(str(path) for _, path, _ in found)}"
        )
    return OK


def _schema(as_json: bool) -> int:
    from symphony.commandline.output.printing import show_json
    from symphony.model import schema

    path = str(schema.path())
    if as_json:
        show_json({"path": path})
    else:
        print(path)
    return OK
