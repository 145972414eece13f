"""The class `SymphonyParser`: the command line with all symphony commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from symphony.commandline.commands.check import CheckCommands
from symphony.commandline.commands.config import ConfigCommands
from symphony.commandline.commands.control import ControlCommands
from symphony.commandline.commands.debug import DebugCommands
from symphony.commandline.commands.delete import DeleteCommands
from symphony.commandline.commands.events import EventsCommands
from symphony.commandline.commands.graph import GraphCommands
from symphony.commandline.commands.import_file import ImportCommands
from symphony.commandline.commands.init import InitCommands
from symphony.commandline.commands.launch import LaunchCommands
from symphony.commandline.commands.logs import LogsCommands
from symphony.commandline.commands.runs import RunsCommands
from symphony.commandline.commands.submit import SubmitCommands
from symphony.commandline.commands.table import GROUPS, TABLE
from symphony.commandline.commands.top import TopCommands
from symphony.commandline.commands.ui import UiCommands
from symphony.commandline.commands.up import UpCommands
from symphony.commandline.commands.use import UseCommands

# The titles of the groups of commands in the help, in this order.
DEFINE = "define experiments"
RUN = "run experiments"
INSPECT = "inspect experiments"
CHANGE = "change running experiments"
CLEAN_UP = "clean up"
SET_UP = "set up"


class SymphonyParser(
    CheckCommands,
    ConfigCommands,
    ControlCommands,
    DebugCommands,
    DeleteCommands,
    EventsCommands,
    GraphCommands,
    ImportCommands,
    InitCommands,
    LaunchCommands,
    LogsCommands,
    RunsCommands,
    SubmitCommands,
    TopCommands,
    UiCommands,
    UpCommands,
    UseCommands,
):
    """Launch multi-process experiments as local processes, in tmux or on Kubernetes.

    An experiment is described in a YAML or JSON file, or in a Python file with a function
    build(exp). A process is identified by its name or by group/process.

    For example:
      symphony launch rl.yml
      symphony ps rl
      symphony logs -f rl
      symphony delete rl

    Exit codes: 0 success, 1 failure, 2 usage error or invalid input, 3 backend error,
    130 interrupted by Ctrl-C. The exit code of wait and launch --follow is that of the
    first process that failed, or 0 if all succeeded.
    """

    def __init__(self, prog: str | None = None) -> None:
        super().__init__(prog)
        self._add_commands()
        self.setup()

    def setup(self) -> None:
        """Add commands and arguments. The method does nothing unless a subclass overrides it."""

    def _add_commands(self) -> None:
        # Each command states whether it changes something; see `CommandLine.changes_something`.
        offer = self._offer
        offer("init", self._add_init, group=DEFINE, changes=True)
        offer("import", self._add_import, group=DEFINE, changes=True)
        offer("check", self._add_check, "validate", group=DEFINE)
        offer("render", self._add_render, group=DEFINE)
        offer("graph", self._add_graph, group=DEFINE)
        offer("launch", self._add_launch, group=RUN, changes=True)
        offer("submit", self._add_submit, group=RUN, changes=True)
        offer("rerun", self._add_rerun, group=RUN, changes=True)
        offer("top", self._add_top, group=INSPECT)
        offer("logs", self._add_logs, "l", "log", group=INSPECT)
        offer("events", self._add_events, group=INSPECT)
        offer("ui", self._add_ui, "dashboard", group=INSPECT)
        offer("history", self._add_history, group=INSPECT)
        offer("show", self._add_show, group=INSPECT)
        offer("compare", self._add_compare, group=INSPECT)
        offer("forward", self._add_forward, "port-forward", group=INSPECT)
        offer("visit", self._add_visit, "vi", "url", "open", group=INSPECT)
        offer("up", self._add_up, group=CHANGE, changes=True)
        offer("diff", self._add_diff, group=CHANGE)
        offer("scale", self._add_scale, group=CHANGE, changes=True)
        offer("stop", self._add_stop, group=CHANGE, changes=True)
        offer("start", self._add_start, group=CHANGE, changes=True)
        offer("restart", self._add_restart, group=CHANGE, changes=True)
        offer("signal", self._add_signal, group=CHANGE, changes=True)
        offer("debug", self._add_debug, group=CHANGE, changes=True)
        offer("exec", self._add_exec, "x", group=CHANGE, changes=True)
        offer("attach", self._add_attach, "ssh", group=CHANGE, changes=True)
        offer("cp", self._add_cp, "scp", group=CHANGE, changes=True)
        offer("down", self._add_down, group=CLEAN_UP, changes=True)
        offer(
            "delete",
            self._add_delete,
            *("d", "rm", "remove", "destroy", "delete-batch", "db"),
            group=CLEAN_UP,
            changes=True,
        )
        offer("prune", self._add_prune, group=CLEAN_UP, changes=True)
        offer(
            "switch-experiment",
            self._add_switch_experiment,
            "se",
            "e",
            group=SET_UP,
            changes=True,
        )
        offer("backends", self._add_backends, group=SET_UP)
        offer("config", self._add_config, group=SET_UP, changes=True)
        offer("completion", self._add_completion, group=SET_UP)
        for name in TABLE.titles:
            self._offer_from_table(TABLE, name)
        order = [name for group in GROUPS for name in group.order]
        factories = self._parser_factories
        self._parser_factories = {
            name: factories[name] for name in sorted(factories, key=order.index)
        }

    def complete_names(self, action: argparse.Action, given: Sequence[str]) -> Iterable[str] | None:
        """Return the names that ``action`` accepts, or None if it does not accept a name."""
        from symphony.commandline.commands.completion_names import complete_names

        return complete_names(self, action, given)
