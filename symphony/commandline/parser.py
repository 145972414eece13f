"""The command line as a class: all the verbs, and what a script of the user's adds."""

from __future__ import annotations

from symphony.commandline.launch_verbs import LaunchVerbs
from symphony.commandline.look_verbs import LookVerbs
from symphony.commandline.use_verbs import UseVerbs


class SymphonyParser(LaunchVerbs, LookVerbs, UseVerbs):
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
        self._unmade.update(
            launch=self._add_launch,
            render=self._add_render,
            ls=self._add_ls,
            ps=self._add_ps,
            logs=self._add_logs,
            wait=self._add_wait,
            exec=self._add_exec,
            attach=self._add_attach,
            cp=self._add_cp,
            forward=self._add_forward,
            visit=self._add_visit,
            delete=self._add_delete,
            backends=self._add_backends,
        )
