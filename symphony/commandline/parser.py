"""The command line as a class: all the verbs, and what a script of the user's adds."""

from __future__ import annotations

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
    """Describe a multi-process experiment once, launch it on local processes, in tmux or on Kubernetes.

    An experiment is a YAML or JSON file, or a Python file with a
    function build(exp). A process is named by itself or as group/process.

    For example:
      symphony launch rl.yml
      symphony ps rl
      symphony logs -f rl
      symphony delete rl

    Exit codes: 0 fine, 1 failed, 2 wrong use or bad input, 3 trouble with the backend, 130 after Ctrl-C.
    wait and launch --follow exit as the experiment does: 0 when all succeeded, else as the first failure.
    """

    def __init__(self, prog: str | None = None) -> None:
        super().__init__(prog)
        self._add_verbs()
        self.setup()

    def setup(self) -> None:
        """For a subclass: add commands and arguments."""

    def _add_verbs(self) -> None:
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
