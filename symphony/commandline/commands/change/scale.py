"""``scale``: change the number of replicas."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.change_experiment import change_experiment
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.command import Command
from symphony.views.controls import Control, Question, UserAction, ValueEntry

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line

COMMAND = Command(changes=True, json="the changes as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    parser.add_argument(
        "counts",
        metavar="NAME=NUMBER",
        nargs="+",
        help="replicated process or group and its number of replicas, such as agent=16; +2 and "
        "-2 add and remove replicas",
    )
    parser.set_defaults(force=False, watch=False)
    shared_arguments.add_client_dry_run(parser)
    shared_arguments.add_show_secrets(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Change the number of replicas of a running experiment.

    Only the replicas with the highest numbers are added or removed. The other replicas are
    started if they have failed or were stopped. If the file takes the
    number from a parameter, the parameter is changed, so processes that use it elsewhere are
    restarted. The file itself does not change: up with the file restores its number.

    For example:
      symphony scale rl agent=16
      symphony scale rl agent=+2 actor=4 --dry-run
      symphony scale agent=16
    """
    from symphony.cluster.scale import replica_names

    name = find_experiment(line, args).name
    counts = _counts(args.counts)
    experiment = line.cluster.scaled_experiment(name, counts)
    return change_experiment(line, experiment, args, start=replica_names(experiment, counts))


def _counts(words: Sequence[str]) -> dict[str, str]:
    """Return the numbers of replicas in words such as ``agent=16``, or ``agent`` and ``16``."""
    counts: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, number = rest.pop(0).partition("=")
        if not equals and rest and rest[0].lstrip("+-").isdecimal():
            number = rest.pop(0)
        if not name or not number:
            text = f"{name}{equals}{number}"
            raise UsageError(
                f"{text!r} is not valid; write NAME=NUMBER, such as agent=16 or agent=+2"
            )
        counts[name] = number
    return counts


def _parse_replicas(text: str) -> dict[str, int | str]:
    """Parse the numbers of replicas that a user enters in a view, such as ``agent=16 worker=+2``.

    Raises `SpecError` if the text has another form.
    """
    from symphony.errors import SpecError

    replicas: dict[str, int | str] = {}
    for word in text.replace(",", " ").split():
        name, equals, count = word.partition("=")
        if not name or not equals or not count:
            raise SpecError(f"{word!r} is not NAME=COUNT, such as agent=16")
        replicas[name] = int(count) if count.isdecimal() else count
    if not replicas:
        raise SpecError("no number of replicas; enter NAME=COUNT, such as agent=16")
    return replicas


def _format_replicas(text: str) -> str:
    return ", ".join(f"{name}={count}" for name, count in _parse_replicas(text).items())


def _ask_before_removal(request: UserAction) -> Question | None:
    """Return a question if a number of replicas can become smaller."""
    counts = _parse_replicas(request.value).values()
    if all(str(count).startswith("+") for count in counts):
        return None
    value = _format_replicas(request.value)
    text = f"Change {value} of {request.experiment}? Processes can be removed."
    return Question(text, "Change")


def _scale(cluster: Cluster, request: UserAction) -> str:
    changes = cluster.scale(request.experiment, _parse_replicas(request.value))
    return f"{request.experiment}: {'; '.join(changes.lines()) or 'nothing to change'}"


CONTROL = Control(
    key="c",
    help="change the number of replicas",
    whole_experiment=True,
    entry=ValueEntry(
        title="Replicas of {experiment}:",
        label="Replicas",
        hint="NAME=COUNT, such as agent=16, or a difference, such as agent=+2",
        parse=_format_replicas,
        is_count=True,
    ),
    question=_ask_before_removal,
    perform=_scale,
)
