"""Find the experiment or process that the user meant by a name.

A command that changes something accepts only complete names. A command that only reads also accepts
the beginning of a name, and reports on standard error which name it has used. If several names
begin with the text, the user can choose one from a menu on a terminal. Without a terminal, an error
lists these names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.output.terminal import is_terminal, print_note
from symphony.errors import NotFound
from symphony.support.names import join_names
from symphony.support.select_names import is_pattern, names_beginning_with, nothing_selected

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus, ProcessStatus

# The argument that names an experiment.
EXPERIMENT = "experiment"
MAX_MENU_ENTRIES = 20
TYPE_MORE = "type more of the name"


def resolve_experiment(cluster: Cluster, given: str, *, exact: bool) -> ExperimentStatus:
    """Return the status of the experiment that the user meant by ``given``.

    Unless ``exact`` is set, ``given`` can be the beginning of a name.

    Raises `NotFound` if no name matches. Raises `UsageError` if several names match and the user
    does not choose one or has no terminal on which to choose.
    """
    name = full_name(cluster, given)
    try:
        # The exact name is tried first because describing one experiment is faster than listing all
        # experiments.
        return cluster.describe_experiment(name)
    except NotFound as exc:
        matches = [] if exact else names_beginning_with(name, cluster.list_experiments())
        if name in matches:
            raise
        if not matches:
            from symphony.commandline.commands.lookup.find_backend import raise_not_found

            raise_not_found(cluster, name, exc)
        return cluster.describe_experiment(_choose("experiment", name, matches, exc))


def full_name(cluster: Cluster, name: str) -> str:
    """Return the name of the experiment that the user means by a complete ``name``.

    It is the name of the copy of the working directory, if there is one on ``cluster``, which is
    reported. Otherwise, it is ``name`` with the user name as a prefix: ``rl`` becomes ``sarah-rl``
    for the user name ``sarah``. If no experiment has the prefixed name, return ``name`` unchanged.
    """
    from symphony.commandline.commands.lookup.own_copy import find_own_copy

    copy = find_own_copy(cluster, cluster.configuration.experiment_name(name))
    if copy is not None and copy.backend == cluster.backend:
        print_note(f"experiment {name!r} is {copy.experiment}, the copy of this directory")
        return copy.experiment
    username = cluster.configuration.username
    if username is None or not name or name.startswith(f"{username}-"):
        return name
    prefixed = f"{username}-{name}"
    return prefixed if prefixed in cluster.list_experiments() else name


def resolve_processes(
    status: ExperimentStatus, names: Sequence[str], *, exact: bool
) -> list[ProcessStatus]:
    """Return the processes that the user meant by ``names``, in declaration order.

    Each name selects processes as in `symphony.cluster.matching.select_processes` or, unless
    ``exact`` is set, is the beginning of the name of one process. If ``names`` is empty, return all
    processes. Raises the same errors as `resolve_process`.
    """
    if not names:
        return list(status)
    selected: set[str] = set()
    for name in names:
        found = _select(status, name) or [resolve_process(status, name, exact=exact)]
        selected.update(process.name for process in found)
    return [process for process in status if process.name in selected]


def resolve_process(
    status: ExperimentStatus, given: str, *, exact: bool, fix: str = TYPE_MORE
) -> ProcessStatus:
    """Return the status of the one process that the user meant by ``given``.

    ``given`` can be anything that selects one process: ``process``, ``group/process``, or a group,
    replicated process or pattern with one process. Unless ``exact`` is set, it can be the beginning
    of the process name, but the group name must be complete. Raises `NotFound` if no process
    matches, and `UsageError` if several match and the user does not choose one or has no terminal
    on which to choose. The error then contains ``fix``.
    """
    from symphony.cluster.matching import find_status

    found = _select(status, given)
    if not found and is_pattern(given):
        raise nothing_selected(status.name, status.processes, given)
    if found:
        by_name = {process.name: process for process in found}
        return by_name[_choose("process", given, list(by_name), None, fix)]
    group, _, name = given.rpartition("/")
    candidates = {item.name: item for item in status if not group or item.group == group}
    try:
        return find_status(status, name, group or None)
    except NotFound as exc:
        exists_in_other_group = any(item.name == name for item in status)
        if exists_in_other_group:
            raise
        matches = [] if exact else names_beginning_with(name, candidates)
        if not matches:
            raise
        return candidates[_choose("process", given, matches, exc, fix)]


def _select(status: ExperimentStatus, name: str) -> list[ProcessStatus]:
    """Return the processes that a complete name or a pattern selects, if there are any."""
    from symphony.cluster.matching import select_processes

    try:
        return select_processes(status, [name])
    except NotFound:
        return []


def _choose(
    kind: str,
    given: str,
    matches: Sequence[str],
    cause: NotFound | None,
    fix: str = TYPE_MORE,
) -> str:
    """Return the only match, or ask the user to choose one of several.

    Raises `UsageError` if there are several matches, and there is no terminal or the user does not
    choose one of them.
    """
    if len(matches) == 1:
        if cause is not None:
            print_note(f"{kind} {given!r} is {matches[0]}")
        return matches[0]
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(
            f"{kind} {given!r} is ambiguous: {join_names(matches, limit=MAX_MENU_ENTRIES)}; {fix}"
        ) from cause
    return _choose_from_menu(kind, given, matches)


def _choose_from_menu(kind: str, given: str, matches: Sequence[str]) -> str:
    """Show a numbered menu on standard error, and return the name that the user chooses."""
    shown = matches[:MAX_MENU_ENTRIES]
    print_note(f"{kind} {given!r} is ambiguous:")
    for number, name in enumerate(shown, 1):
        print_note(f"  {number:2} {name}")
    if len(matches) > len(shown):
        print_note(f"     and {len(matches) - len(shown)} more")
    print_note(f"which one? [1-{len(shown)}] ", end="")
    answer = sys.stdin.readline().strip()
    if answer in matches:
        return answer
    if answer.isdecimal() and 1 <= int(answer) <= len(shown):
        return shown[int(answer) - 1]
    raise UsageError(f"no {kind} was chosen")
