"""The options of the commands that launch an experiment file or change an experiment to it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.output.terminal import print_note
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment


class ExperimentOptions(BaseCommands):
    """A set of commands that load an experiment and can replace its policies."""

    def _add_policies(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that determine how an experiment ends."""
        from symphony.model.experiment_options import FAILURE_POLICIES

        add = parser.add_argument_group("the end of the experiment").add_argument
        add(
            "--ends-with",
            metavar="NAME",
            action="append",
            default=[],
            help="finish when this process or group has finished, and stop the others; "
            "repeatable, or separated by commas",
        )
        add(
            "--on-failure",
            choices=FAILURE_POLICIES,
            help="what happens to the other processes when one has failed (default: continue)",
        )
        add(
            "--deadline",
            metavar="TIME",
            help="stop the experiment this long after the launch, in seconds or with a unit, such "
            "as 6h",
        )

    def _load_with_policies(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment, and replace the policies that are given on the command line.

        Print a warning for each variable that no shell expands.
        """
        experiment = self._load_experiment(args)
        names = [name for text in args.ends_with for name in text.split(",")]
        if names:
            experiment.ends_with = names
        if args.on_failure is not None:
            experiment.on_failure = args.on_failure
        if args.deadline is not None:
            experiment.deadline = args.deadline
        self._warn_of_unexpanded_variables(experiment)
        return experiment

    def _warn_of_unexpanded_variables(self, experiment: Experiment) -> None:
        from symphony.plan.unexpanded import check_unexpanded_variables

        findings = list(check_unexpanded_variables(experiment))
        if not findings:
            return
        from symphony.lint.merge import merge_findings

        for finding in merge_findings(findings):
            processes = f"{join_names(finding.processes, limit=3)}: " if finding.processes else ""
            print_note(f"{self.prog}: warning: {processes}{finding.message}")
