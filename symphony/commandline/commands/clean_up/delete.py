"""``delete``: stop and delete experiments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.deletion import Deletion
from symphony.commandline.exit_codes import UsageError, error_message
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command
from symphony.errors import NotFound, SymphonyError
from symphony.views.controls import Control, Question

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.views.controls import UserAction

COMMAND = Command(
    aliases=("rm", "remove", "destroy", "delete-batch"),
    changes=True,
    json="the names of the deleted experiments as JSON",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "experiments",
        metavar="EXPERIMENT|PATTERN",
        nargs="*",
        help="experiment names, or patterns such as 'rl-*' in quotes",
    )
    parser.add_argument(
        "--all", action="store_true", help="delete every experiment that symphony launched"
    )
    parser.add_argument(
        "--finished",
        action="store_true",
        help="delete every experiment that has finished, but none that was stopped",
    )
    parser.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="do not ask for confirmation or follow the stop order; ignore unknown names",
    )
    shared_arguments.add_now(parser)
    parser.add_argument(
        "--purge", action="store_true", help="also remove the record of the run, with its logs"
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Stop experiments and delete them.

    The record of the run remains, with the logs; see `symphony history`. --purge removes the
    record too. On Kubernetes, the logs are copied to this machine before the Pods are deleted.

    On a terminal, the command asks for confirmation. A script must pass --force. With --force,
    the command does not ask for confirmation and ignores unknown names. All processes then
    receive their stop signal at the same time, instead of in the reverse of the start order.
    down keeps the order and needs no confirmation. --now kills all processes at once.

    In a pattern, * matches any text, ? matches any one character, and [ab] matches one of the
    characters in the brackets. Write a pattern in quotes, because the shell would otherwise
    replace it with the names of matching files. Patterns, --all and --finished select the
    experiments of one backend, which is the configured one unless -b names another. A name is
    found on any backend.

    --finished deletes the experiments of which every process has succeeded or failed. An
    experiment that was stopped is kept, because start can start it again.

    Several experiments are deleted at the same time. Each process has its grace period to exit.
    Ctrl-C kills the processes that still run, and the deletion continues; a second Ctrl-C ends
    the command.

    For example:
      symphony delete rl
      symphony delete -f rl rl-2
      symphony delete 'sweep-*'
      symphony delete --finished
      symphony delete --all --dry-run
    """
    if [bool(args.experiments), args.all, args.finished].count(True) != 1:
        raise UsageError(
            "name each EXPERIMENT, give a pattern in quotes such as 'rl-*', or pass --all or "
            f"--finished; for the experiment of this directory, use: {line.prog} down"
        )
    _refuse_processes(line, args.experiments)
    if args.finished:
        names = _finished_experiments(line.selected_cluster)
    else:
        names = _expand_patterns(
            line.selected_cluster,
            ["*"] if args.all else args.experiments,
            force=args.force or args.all,
            only_selected=line.names_backend,
        )
        names = [_launched_from_file(line, *item) for item in names]
    if not names:
        print_note("no experiment matches; nothing to delete")
    options = {"purge": args.purge, "at_once": args.now}
    # The order of the stop is the default, which a third-party backend need not support.
    given_options = {key: value for key, value in options.items() if value}
    if args.force:
        given_options["in_order"] = False
    # If there are no names, there is nothing to confirm.
    deletion = Deletion(
        line.cluster_with,
        names,
        force=args.force or not names,
        options=given_options,
        as_json=args.json,
        dry_run=args.dry_run,
    )
    return deletion.run()


def _refuse_processes(line: Line, words: Sequence[str]) -> None:
    """Raise `UsageError` for ``EXPERIMENT/PROCESS``, because only experiments can be deleted."""
    from symphony.commandline.commands.lookup.this_directory import FILE_SUFFIXES

    for word in words:
        if "/" in word and not word.endswith(FILE_SUFFIXES):
            raise UsageError(
                f"delete takes only experiments, not {word!r}; to stop a process, use: "
                f"{line.prog} stop {word}"
            )


def _launched_from_file(
    line: Line, word: str, cluster: Cluster | None
) -> tuple[str, Cluster | None]:
    """Return the experiment that was launched from a file, and its cluster. Return other words
    unchanged.
    """
    from pathlib import Path

    from symphony.commandline.commands.lookup.this_directory import LaunchedHere, is_file

    if cluster is not None or not is_file(word):
        return word, cluster
    launched = LaunchedHere(
        line.selected_cluster, only_selected=line.names_backend, given=Path(word)
    )
    found, status = launched.require()
    return status.name, found


def _expand_patterns(
    cluster: Cluster, words: Sequence[str], *, force: bool, only_selected: bool
) -> list[tuple[str, Cluster | None]]:
    """Return the words, with each pattern replaced by the names of the matching experiments.

    The cluster of an experiment that matches a pattern is ``cluster``. The cluster of a name is
    None, because it can be another one. Raises `NotFound` if a pattern matches no experiment,
    unless ``force`` is set. Unless ``only_selected`` is set, the error names the backends on which
    experiments match.
    """
    from symphony.support.names import join_names

    if not any(map(_is_pattern, words)):
        return [(word, None) for word in words]
    from fnmatch import fnmatchcase

    known = cluster.list_experiments()
    names: list[tuple[str, Cluster | None]] = []
    for word in words:
        if not _is_pattern(word):
            names.append((word, None))
            continue
        matches = [name for name in known if fnmatchcase(name, word)]
        if not matches and not force:
            hint = "" if only_selected else _matches_elsewhere(cluster, word)
            hint = hint or f"; existing experiments: {join_names(known)}"
            raise NotFound(f"no experiment matches {word!r}{hint}")
        names += [(name, cluster) for name in matches]
    return names


def _finished_experiments(cluster: Cluster) -> list[tuple[str, Cluster | None]]:
    """Return the experiments of a cluster that have finished, in the form of `_expand_patterns`.

    An experiment whose status cannot be determined is reported and left out.
    """

    def report(exc: SymphonyError) -> None:
        print_note(f"symphony: error: {error_message(exc)}")

    names = cluster.list_experiments()
    statuses = cluster.describe_experiments(names, on_error=report)
    return [(status.name, cluster) for status in statuses if status.has_finished]


def _matches_elsewhere(selected: Cluster, pattern: str) -> str:
    """Return a hint that names the other backends on which experiments match, or ``""``."""
    from fnmatch import fnmatchcase

    from symphony.commandline.commands.lookup.find_backend import quick_names

    found = []
    for backend, known in quick_names(selected).items():
        if any(fnmatchcase(name, pattern) for name in known):
            found.append(f"-b {backend}")
    if not found:
        return ""
    return f" on {selected.backend}; for those on another backend, add {' or '.join(found)}"


def _is_pattern(word: str) -> bool:
    # The name of an experiment contains none of these characters.
    return not set("*?[").isdisjoint(word)


def _delete(cluster: Cluster, request: UserAction) -> str:
    cluster.delete(request.experiment)
    return f"deleted {request.experiment}"


CONTROL = Control(
    key="D",
    help="stop and delete the experiment",
    whole_experiment=True,
    question=lambda request: Question(
        f"Delete {request.experiment}? Its processes are stopped. The record of the run and "
        "its logs are kept.",
        "Delete",
    ),
    perform=_delete,
)
