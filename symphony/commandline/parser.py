"""The class `SymphonyParser`: the command line with all symphony commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.line import Line
from symphony.commandline.commands.table import TABLE
from symphony.commandline.parsing.dispatch import METHOD_CHECKS
from symphony.support.argument_checks import Check, check_methods

if TYPE_CHECKING:
    from symphony.model import Experiment


class SymphonyParser(Line):
    """Launch multi-process experiments as local processes, in tmux, on Kubernetes or on Slurm.

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

    # --- steps for the commands of a subclass ---

    def launch(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        dry_run: bool | Literal["server"] = False,
        build: bool = False,
        follow: bool = False,
    ) -> int:
        """Launch an experiment on the cluster of the command line, and return the exit code.

        The arguments are the options of ``symphony launch``. With ``build``, the images that the
        experiment declares are built and pushed first. With ``follow``, the method shows the output
        of the processes until all have exited, and Ctrl-C stops the experiment. The exit code is
        then that of the experiment, and otherwise 0. ``force`` and ``dry_run`` are those of
        `symphony.Cluster.launch`. In a dry run, nothing is built, and nothing is followed.
        """
        from symphony.commandline.exit_codes import OK

        if build:
            from symphony.commandline.commands.experiment_file.build_images import with_built_images

            experiment = with_built_images(
                self.cluster, experiment, dry_run=bool(dry_run), may_be_running=force
            )
        if follow and not dry_run:
            from symphony.commandline.commands import foreground

            return foreground.launch_and_follow(
                self.cluster, experiment, force=force, as_json=False
            )
        self.cluster.launch(experiment, force=force, dry_run=dry_run)
        return OK

    # --- names ---

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


def _is_experiment(value: object) -> bool:
    from symphony.model import Experiment

    return isinstance(value, Experiment)


_EXPERIMENT = Check(_is_experiment, "an Experiment, such as self.cluster.new_experiment(name)")
check_methods(
    SymphonyParser,
    {**METHOD_CHECKS, "Experiment": _EXPERIMENT},
    also=("_add_experiment_name", "_add_component_arg"),
)
