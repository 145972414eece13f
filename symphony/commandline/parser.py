"""The class `SymphonyParser`: the command line with all symphony commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from symphony.commandline.commands.check import CheckCommands
from symphony.commandline.commands.config import ConfigCommands
from symphony.commandline.commands.delete import DeleteCommands
from symphony.commandline.commands.graph import GraphCommands
from symphony.commandline.commands.init import InitCommands
from symphony.commandline.commands.inspect import InspectCommands
from symphony.commandline.commands.launch import LaunchCommands
from symphony.commandline.commands.logs import LogsCommands
from symphony.commandline.commands.submit import SubmitCommands
from symphony.commandline.commands.use import UseCommands


class SymphonyParser(
    CheckCommands,
    ConfigCommands,
    DeleteCommands,
    GraphCommands,
    InitCommands,
    InspectCommands,
    LaunchCommands,
    LogsCommands,
    SubmitCommands,
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
        offer = self._offer
        offer("launch", self._add_launch)
        offer("render", self._add_render)
        offer("check", self._add_check)
        offer("submit", self._add_submit)
        offer("init", self._add_init)
        offer("ls", self._add_ls, "lse")
        offer("ps", self._add_ps, "p", "lsp", "process")
        offer("graph", self._add_graph)
        offer("describe", self._add_describe)
        offer("logs", self._add_logs, "l", "log")
        offer("wait", self._add_wait)
        offer("exec", self._add_exec, "x")
        offer("attach", self._add_attach, "ssh")
        offer("cp", self._add_cp, "scp")
        offer("forward", self._add_forward)
        offer("visit", self._add_visit, "vi", "url")
        offer("delete", self._add_delete, "d")
        offer("delete-batch", self._add_delete_batch, "db")
        offer("switch-experiment", self._add_switch_experiment, "se", "e")
        offer("backends", self._add_backends)
        offer("completion", self._add_completion)
        offer("config", self._add_config)

    def complete_names(self, action: argparse.Action, given: Sequence[str]) -> Iterable[str] | None:
        """Return the names that ``action`` accepts, or None if it does not accept a name."""
        from symphony.commandline.commands.completion_names import complete_names

        return complete_names(self, action, given)
