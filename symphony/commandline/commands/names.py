"""Which experiment or process was meant: a name may be shortened, and "." is the current experiment.

What fits is looked for in this order: the name itself, names that begin with it, that end with it, that hold it.
Where several fit, a menu is offered on a terminal; a script gets an error with all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.output.terminal import is_terminal, print_note
from symphony.errors import NotFound
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus, ProcessStatus

Seen = TypeVar("Seen")

CURRENT = "."
LONGEST_MENU = 20


def experiment(cluster: Cluster, given: str | None) -> ExperimentStatus:
    """The experiment that was meant, as it is now; None and "." mean the current one.

    Raises `NotFound` where no name fits, and `UsageError` where several do and nobody can be asked.
    """
    return looked_at(cluster, given, cluster.describe_experiment)


def looked_at(cluster: Cluster, given: str | None, look: Callable[[str], Seen]) -> Seen:
    """What ``look`` says of the experiment that was meant; it raises `NotFound` for a name that is not there."""
    name = _current(cluster) if given in (None, CURRENT) else own(cluster, str(given))
    try:
        return look(name)
    except NotFound as exc:
        fitting = cluster.fuzzy_match_experiment(name) if name else []
        if not fitting or name in fitting:
            raise
        return look(one("experiment", name, fitting, exc))


def own(cluster: Cluster, name: str) -> str:
    """The user's own experiment of that name where there is one, ``sarah-rl`` for ``rl``; else the name as it is."""
    from symphony.config import SymphonyConfig

    username = SymphonyConfig().username
    if username is None or not name or name.startswith(f"{username}-"):
        return name
    mine = f"{username}-{name}"
    return mine if mine in cluster.list_experiments() else name


def process(status: ExperimentStatus, given: str) -> ProcessStatus:
    """The process of an experiment that was meant by ``process`` or ``group/process``; a group is never shortened.

    Raises as `experiment`.
    """
    from symphony.cluster.matching import find_status, fuzzy_match

    group, _, name = given.rpartition("/")
    members = {item.name: item for item in status if not group or item.group == group}
    try:
        return find_status(status, name, group or None)
    except NotFound as exc:
        if name in {item.name for item in status}:  # of another group
            raise
        fitting = fuzzy_match(name, list(members)) if name else []
        if not fitting:
            raise
        return members[one("process", given, fitting, exc)]


def one(what: str, given: str, fitting: Sequence[str], why: NotFound) -> str:
    """The one that fits, or the one of several that is chosen from a menu."""
    if len(fitting) == 1:
        if is_terminal(sys.stderr):
            print_note(f"{what} {given!r} is {fitting[0]}")
        return fitting[0]
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(
            f"{what} {given!r} may be {join_names(fitting, limit=LONGEST_MENU)}; say more of it"
        ) from why
    return _chosen(what, given, fitting)


def _chosen(what: str, given: str, fitting: Sequence[str]) -> str:
    shown = fitting[:LONGEST_MENU]
    print_note(f"{what} {given!r} may be")
    for number, name in enumerate(shown, 1):
        print_note(f"  {number:2} {name}")
    if len(fitting) > len(shown):
        print_note(f"     and {len(fitting) - len(shown)} more")
    print(f"which one? [1-{len(shown)}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer in fitting:
        return answer
    if answer.isdecimal() and 1 <= int(answer) <= len(shown):
        return shown[int(answer) - 1]
    raise UsageError(f"no {what} was chosen")


def _current(cluster: Cluster) -> str:
    from symphony.commandline.commands import current_experiment

    return current_experiment.name(cluster.backend)
