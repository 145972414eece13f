"""The options of the commands that launch an experiment file or change an experiment to it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.output.terminal import print_note
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.experiment.given_options import GivenOptions


class ExperimentOptions(BaseCommands):
    """A set of commands that load an experiment and can replace its policies."""

    _noted = ""

    def _add_policies(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that determine how an experiment ends."""
        from symphony.model.settings.experiment_options import FAILURE_POLICIES

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

    def _add_reset(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--reset``."""
        parser.add_argument(
            "--reset",
            action="store_true",
            help="do not keep the options of the launch, such as --set and --deadline",
        )

    def _load_with_policies(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment, and replace the policies that are given on the command line.

        Print a warning for each variable that no shell expands.
        """
        experiment = self._load_as_given(args)
        self._warn_of_unexpanded_variables(experiment)
        return experiment

    def _load_as_given(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment with the options of the command line, which it remembers."""
        experiment = self._load_experiment(args)
        names = [name for text in args.ends_with for name in text.split(",")]
        if names:
            experiment.ends_with = names
        if args.on_failure is not None:
            experiment.on_failure = args.on_failure
        if args.deadline is not None:
            experiment.deadline = args.deadline
        experiment.given = replace(
            experiment.given,
            ends_with=tuple(names),
            on_failure=args.on_failure,
            deadline=args.deadline,
        )
        return experiment

    def _load_for_change(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment as `_load_with_policies` does, and keep the options with which the
        existing experiment was launched or changed last.

        Print the options that are kept. With ``--reset``, or if the existing experiment was
        launched from another directory, none is kept.
        """
        experiment = self._load_as_given(args)
        if args.reset:
            self.cluster = self.cluster.without_kept_options()
        elif self.cluster.other_origin(experiment) is None:
            earlier = self.cluster.launch_options(experiment.name)
            kept = _still_valid(earlier.without(experiment.given), experiment)
            if kept:
                experiment = self._load_again(args, kept)
                self._note_once(
                    f"{self.prog}: keeping {kept.words()} of {experiment.name!r}; --reset uses "
                    "the values of the file"
                )
        self._warn_of_unexpanded_variables(experiment)
        return experiment

    def _load_again(self, args: argparse.Namespace, kept: GivenOptions) -> Experiment:
        """Load the experiment with options in addition to those of the command line."""
        from symphony.errors import SpecError

        both = argparse.Namespace(**vars(args))
        both.parameters = [*kept.parameters.items(), *args.parameters]
        both.ends_with = args.ends_with or list(kept.ends_with)
        both.on_failure = kept.on_failure if args.on_failure is None else args.on_failure
        both.deadline = kept.deadline if args.deadline is None else args.deadline
        try:
            return self._load_as_given(both)
        except SpecError as exc:
            exc.args = (f"{exc}; --reset ignores {kept.words()} of the launch",)
            raise

    def _note_once(self, text: str) -> None:
        """Print a message, unless it is the same as the previous one. ``up --watch`` repeats it."""
        if text != self._noted:
            self._noted = text
            print_note(text)

    def _warn_of_unexpanded_variables(self, experiment: Experiment) -> None:
        from symphony.plan.unexpanded import check_unexpanded_variables

        findings = list(check_unexpanded_variables(experiment))
        if not findings:
            return
        from symphony.lint.merge import merge_findings

        for finding in merge_findings(findings):
            processes = f"{join_names(finding.processes, limit=3)}: " if finding.processes else ""
            print_note(f"{self.prog}: warning: {processes}{finding.message}")


def _still_valid(options: GivenOptions, experiment: Experiment) -> GivenOptions:
    """Return options without the parameters that the file of ``experiment`` no longer declares.

    The parameters of a Python file are not known.
    """
    if experiment.source is None:
        return options
    declared = experiment.source.parameters
    parameters = {name: text for name, text in options.parameters.items() if name in declared}
    return replace(options, parameters=parameters)
