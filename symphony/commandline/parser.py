"""The class `SymphonyParser`: the command line with all symphony commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.line import Line
from symphony.commandline.commands.table import TABLE
from symphony.commandline.parsing.dispatch import METHOD_CHECKS
from symphony.support.argument_checks import check_methods


class SymphonyParser(Line):
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

    table = TABLE

    def __init__(self, prog: str | None = None) -> None:
        super().__init__(prog)
        self.setup()

    def setup(self) -> None:
        """Add commands and arguments. The method does nothing unless a subclass overrides it."""

    # --- arguments for the commands of a subclass ---

    def add_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--dry-run`` and ``--dry-run-server``.

        ``args.dry_run`` is False, True or ``"server"``. `symphony.Cluster.launch` accepts the same
        values for ``dry_run``.
        """
        shared_arguments.add_dry_run(parser)

    def _add_experiment_name(
        self, parser: argparse.ArgumentParser, *, required: bool = True, positional: bool = True
    ) -> None:
        """Add an argument that sets ``args.experiment``.

        The argument is positional, or ``-e`` or ``--experiment`` if ``positional`` is false. If
        the argument is optional and not given, ``args.experiment`` is None.
        """
        shared_arguments.add_experiment_name(parser, required=required, positional=positional)

    def _add_component_arg(self, parser: argparse.ArgumentParser) -> None:
        """Add a positional argument that sets ``args.process``."""
        shared_arguments.add_process(parser)

    def complete_names(self, action: argparse.Action, given: Sequence[str]) -> Iterable[str] | None:
        """Return the names that ``action`` accepts, or None if it does not accept a name."""
        from symphony.commandline.commands.lookup.completion_names import complete_names

        return complete_names(self, action, given)


check_methods(SymphonyParser, METHOD_CHECKS, also=("_add_experiment_name", "_add_component_arg"))
