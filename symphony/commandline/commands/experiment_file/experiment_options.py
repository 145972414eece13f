"""The options of the commands that launch an experiment file or change an experiment to it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from symphony.commandline.commands.experiment_file.chosen_file import (
    load_experiment,
    load_with_errors,
)
from symphony.commandline.output.terminal import print_note
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment
    from symphony.model.experiment.given_options import GivenOptions


def add_policies(parser: argparse.ArgumentParser) -> None:
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


def add_reset(parser: argparse.ArgumentParser) -> None:
    """Add ``--reset``."""
    parser.add_argument(
        "--reset",
        action="store_true",
        help="do not keep the options of the launch, such as --set and --deadline",
    )


def add_subset(parser: argparse.ArgumentParser) -> None:
    """Add the processes that are launched."""
    parser.add_argument(
        "processes",
        metavar="PROCESS",
        nargs="*",
        help="launch only these processes, groups or patterns such as 'agent-*', and the "
        "processes that they need (default: all)",
    )


def load_selected(line: Line, args: argparse.Namespace) -> Experiment:
    """Load the experiment, and remove the processes that the user did not select."""
    experiment = _load_with_policies(line, args)
    if not args.processes:
        return experiment
    from symphony.model.experiment.subset import select

    needed = select(experiment, args.processes).needed
    if needed:
        by = join_names(dict.fromkeys(needed.values()))
        print_note(f"{line.prog}: also selected, because needed by {by}: {join_names(needed)}")
    return experiment.subset(args.processes)


def _load_with_policies(line: Line, args: argparse.Namespace) -> Experiment:
    """Load the experiment, and replace the policies that are given on the command line.

    Print a warning for each variable that no shell expands.
    """
    experiment = _load_as_given(line, args)
    _warn_of_unexpanded_variables(line, experiment)
    return experiment


def _load_as_given(line: Line, args: argparse.Namespace) -> Experiment:
    """Load the experiment with the options of the command line, which it remembers."""
    return _with_policies(load_experiment(line, args), args)


def _with_policies(experiment: Experiment, args: argparse.Namespace) -> Experiment:
    """Apply the policies of the command line to an experiment, which remembers them."""
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


def load_for_change(line: Line, args: argparse.Namespace) -> Experiment:
    """Load the experiment as `_load_with_policies` does, and keep the options with which the
    existing experiment was launched or changed last.

    Print the options that are kept. With ``--reset``, or if the existing experiment was
    launched from another directory, none is kept.
    """
    from symphony.model.experiment.given_options import GivenOptions

    # A parameter without a default has no value yet if the launch has given it.
    result = load_with_errors(line, args)
    if result.experiment is None:
        return result.experiment_or_error()
    experiment = _with_policies(result.experiment, args)
    kept = GivenOptions()
    if args.reset:
        line.cluster = line.cluster.without_kept_options()
    elif line.cluster.other_origin(experiment) is None:
        earlier = line.cluster.launch_options(experiment.name)
        kept = _still_valid(earlier.without(experiment.given), experiment)
    if not kept:
        result.experiment_or_error()
    else:
        experiment = _load_again(line, args, kept, was_valid=not result.errors)
        line.print_note_once(
            f"{line.prog}: keeping {kept.words()} of {experiment.name!r}; --reset uses "
            "the values of the file"
        )
    _warn_of_unexpanded_variables(line, experiment)
    return experiment


def _load_again(
    line: Line, args: argparse.Namespace, kept: GivenOptions, *, was_valid: bool
) -> Experiment:
    """Load the experiment with options in addition to those of the command line.

    ``was_valid`` is true if the file was valid without these options, so that an error is theirs.
    """
    from symphony.errors import SpecError

    both = argparse.Namespace(**vars(args))
    both.parameters = [*kept.parameters.items(), *args.parameters]
    both.ends_with = args.ends_with or list(kept.ends_with)
    both.on_failure = kept.on_failure if args.on_failure is None else args.on_failure
    both.deadline = kept.deadline if args.deadline is None else args.deadline
    try:
        return _load_as_given(line, both)
    except SpecError as exc:
        if was_valid:
            exc.args = (f"{exc}; --reset ignores {kept.words()} of the launch",)
        raise


def _warn_of_unexpanded_variables(line: Line, experiment: Experiment) -> None:
    from symphony.plan.resolution.unexpanded import check_unexpanded_variables

    findings = list(check_unexpanded_variables(experiment))
    if not findings:
        return
    from symphony.lint.merge import merge_findings

    for finding in merge_findings(findings):
        processes = f"{join_names(finding.processes, limit=3)}: " if finding.processes else ""
        print_note(f"{line.prog}: warning: {processes}{finding.message}")


def _still_valid(options: GivenOptions, experiment: Experiment) -> GivenOptions:
    """Return options without the parameters that the file of ``experiment`` no longer declares.

    The parameters of a Python file are not known.
    """
    if experiment.source is None:
        return options
    declared = experiment.source.declared_parameters
    parameters = {name: text for name, text in options.parameters.items() if name in declared}
    return replace(options, parameters=parameters)
