"""The commands that delete experiments: ``delete`` and ``down``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import FAILED, OK, UsageError, error_message, exit_code
from symphony.commandline.output.terminal import is_terminal, print_note, print_text
from symphony.errors import BackendError, NotFound, SymphonyError, Unreachable

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.delete_with_progress import DeletedExperiment


class DeleteCommands(BaseCommands):
    """The ``delete`` and ``down`` commands."""

    def _add_down(self) -> None:
        parser = self.add_subparser("down")
        self._add_experiment(parser)
        self._add_file_option(parser)
        _add_now(parser)
        self._add_client_dry_run(parser)
        self._add_json(parser, "the name of the deleted experiment as JSON")

    def action_down(self, args: argparse.Namespace) -> int | None:
        """Stop an experiment and delete it, without a question.

        The record of the run remains, with the logs; see `symphony history`. Without EXPERIMENT,
        the command deletes the experiment that was launched from this directory, and prints its
        name. EXPERIMENT can also be the file from which it was launched. The processes are stopped
        in the reverse of the start order, and each has its grace period to exit. --now kills all of
        them at once.

        For example:
          symphony down
          symphony down rl
          symphony down rl.yml
        """
        if args.file_option is not None:
            if args.experiment is not None:
                raise UsageError(
                    f"name the file {args.file_option} or the experiment {args.experiment}, not "
                    "both"
                )
            args.experiment = args.file_option
        status = self._find_experiment(args)
        deletion = Deletion(
            self.cluster_with,
            [(status.name, self.cluster)],
            force=True,
            options={"at_once": True} if args.now else {},
            as_json=args.json,
            dry_run=args.dry_run,
        )
        return deletion.run()

    def _add_delete(self) -> None:
        parser = self.add_subparser("delete")
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
        _add_now(parser)
        parser.add_argument(
            "--purge", action="store_true", help="also remove the record of the run, with its logs"
        )
        self._add_client_dry_run(parser)
        self._add_json(parser, "the names of the deleted experiments as JSON")

    def action_delete(self, args: argparse.Namespace) -> int | None:
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
                f"--finished; for the experiment of this directory, use: {self.prog} down"
            )
        if args.finished:
            names = _finished_experiments(self.selected_cluster)
        else:
            names = _expand_patterns(
                self.selected_cluster,
                ["*"] if args.all else args.experiments,
                force=args.force or args.all,
                only_selected=self.names_backend,
            )
            names = [self._launched_from_file(*item) for item in names]
        if not names:
            print_note("no experiment matches; nothing to delete")
        options = {"purge": args.purge, "at_once": args.now}
        # The order of the stop is the default, which a third-party backend need not support.
        given_options = {key: value for key, value in options.items() if value}
        if args.force:
            given_options["in_order"] = False
        # If there are no names, there is nothing to confirm.
        deletion = Deletion(
            self.cluster_with,
            names,
            force=args.force or not names,
            options=given_options,
            as_json=args.json,
            dry_run=args.dry_run,
        )
        return deletion.run()

    def _launched_from_file(self, word: str, cluster: Cluster | None) -> tuple[str, Cluster | None]:
        """Return the experiment that was launched from a file, and its cluster. Return other words
        unchanged.
        """
        from pathlib import Path

        from symphony.commandline.commands.this_directory import LaunchedHere, is_file

        if cluster is not None or not is_file(word):
            return word, cluster
        launched = LaunchedHere(
            self.selected_cluster, only_selected=self.names_backend, given=Path(word)
        )
        found, status = launched.require()
        return status.name, found


def _add_now(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--now", action="store_true", help="kill the processes, without a grace period"
    )


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
            hint = "" if only_selected else _matches_elsewhere(cluster.backend, word)
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


def _matches_elsewhere(selected: str, pattern: str) -> str:
    """Return a hint that names the other backends on which experiments match, or ``""``."""
    from fnmatch import fnmatchcase

    from symphony.commandline.commands.find_backend import quick_names

    found = [
        f"-b {backend}"
        for backend, known in quick_names(selected).items()
        if any(fnmatchcase(name, pattern) for name in known)
    ]
    return (
        f" on {selected}; for those on another backend, add {' or '.join(found)}" if found else ""
    )


def _is_pattern(word: str) -> bool:
    # The name of an experiment contains none of these characters.
    return not set("*?[").isdisjoint(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingExperiment:
    """The name of an existing experiment, a one-line summary of its state, and the number of its
    processes as text.
    """

    name: str
    summary: str
    size: str


class Deletion:
    """One execution of ``delete``.

    ``options`` are the keyword arguments of `Cluster.delete`. ``find_cluster`` returns the cluster
    with the experiment that the user meant by a name; see `BaseCommands.cluster_with`. It is called
    for each of the ``names`` whose cluster is None.
    """

    def __init__(
        self,
        find_cluster: Callable[[str], Cluster],
        names: Sequence[tuple[str, Cluster | None]],
        *,
        force: bool,
        options: Mapping[str, bool],
        as_json: bool,
        dry_run: bool,
    ) -> None:
        self._find_cluster = find_cluster
        self._names = names
        self._experiments: list[tuple[Cluster, str]] = []
        self._force = force
        self._options = options
        self._as_json = as_json
        self._dry_run = dry_run

    def run(self) -> int:
        """Delete the experiments and return the exit code.

        Without ``--force``, nothing is deleted if a name is unknown or the user does not confirm.
        """
        from symphony.commandline.commands.resolve_names import with_user_prefix

        experiments = []
        for given, cluster in self._names:
            if cluster is not None:
                experiments.append((cluster, given))
                continue
            cluster = self._find_cluster(given)
            experiments.append((cluster, with_user_prefix(cluster, given)))
        self._experiments = list(dict.fromkeys(experiments))
        if self._dry_run:
            return self._report_dry_run()
        if not self._force and not self._confirm():
            print_note("nothing was deleted")
            return FAILED
        return self._delete_all()

    def _delete_all(self) -> int:
        from symphony.commandline.commands.delete_with_progress import delete_with_progress
        from symphony.commandline.parsing import completion_cache

        code = OK
        deleted = []
        targets = []
        for cluster, name in self._experiments:
            try:
                targets.append(self._find_target(cluster, name))
            except NotFound as exc:
                print_note(f"{error_message(exc)}; nothing to delete")
            except SymphonyError as exc:
                # A failure must not prevent the deletion of the remaining experiments.
                code = code or self._report(exc)
        results = delete_with_progress(targets, self._options) if targets else iter(())
        for target, error in zip(targets, results, strict=True):
            if error is not None:
                code = code or self._report(error)
                continue
            deleted.append(target.name)
            self._report_deleted(target.cluster, target.name)
        completion_cache.clear_cached_names()
        if self._as_json:
            self._show_names(deleted)
        return code

    def _find_target(self, cluster: Cluster, name: str) -> DeletedExperiment:
        from symphony.commandline.commands.delete_with_progress import DeletedExperiment

        size = self._describe(cluster, name).size
        return DeletedExperiment(cluster=cluster, name=name, size=size)

    def _report(self, exc: SymphonyError) -> int:
        print_note(f"symphony: error: {error_message(exc)}")
        return exit_code(exc)

    def _report_dry_run(self) -> int:
        candidates = [self._describe_or_none(cluster, name) for cluster, name in self._experiments]
        existing = [experiment for experiment in candidates if experiment is not None]
        if self._as_json:
            self._show_names([experiment.name for experiment in existing])
        for experiment in existing:
            print_note(f"would delete {experiment.summary}")
        return OK

    def _show_names(self, names: Sequence[str]) -> None:
        from symphony.commandline.output.printing import show_json

        show_json(list(names))

    def _describe(self, cluster: Cluster, name: str) -> ExistingExperiment:
        """Return the description of an experiment. Raises `NotFound` if the experiment does not
        exist.

        An experiment whose record is damaged can still be deleted, so in that case the summary
        contains the error message.
        """
        from symphony.commandline.output import views

        try:
            status = cluster.describe_experiment(name)
        except NotFound as exc:
            from symphony.commandline.commands.find_backend import raise_not_found

            raise_not_found(cluster, name, exc)
        except Unreachable:
            raise
        except BackendError as exc:
            return ExistingExperiment(
                name=name,
                summary=f"{name} (status unknown: {error_message(exc)})",
                size="unknown number of processes",
            )
        return ExistingExperiment(
            name=name,
            summary=views.summary_line(status),
            size=views.count_processes(len(status.processes)),
        )

    def _describe_or_none(self, cluster: Cluster, name: str) -> ExistingExperiment | None:
        """Return the description of an experiment, or None if it does not exist and ``--force`` is
        set.
        """
        try:
            return self._describe(cluster, name)
        except NotFound as exc:
            if not self._force:
                raise
            print_note(f"{error_message(exc)}; nothing to delete")
            return None

    def _confirm(self) -> bool:
        """Ask the user for confirmation, and return whether the user confirms. Raises `UsageError`
        if there is no terminal.
        """
        existing = [self._describe(cluster, name) for cluster, name in self._experiments]
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError(
                "delete asks for confirmation, and there is no terminal; pass --force (-f) to "
                "delete without confirmation"
            )
        summaries = ", ".join(experiment.summary for experiment in existing)
        print_note(f"delete {summaries}? [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def _report_deleted(self, cluster: Cluster, name: str) -> None:
        """Report that an experiment was deleted, and forget it."""
        from symphony.commandline.commands.current_experiment import clear_current

        clear_current(cluster.backend, name)
        if not self._as_json:
            print_text(f"deleted {name}")
        if not self._options.get("purge"):
            self._report_cut_record(cluster, name)

    def _report_cut_record(self, cluster: Cluster, name: str) -> None:
        """Report which parts of the record of the deleted run are missing."""
        runs = (run for run in cluster.list_runs() if run.experiment == name)
        newest = next(runs, None)
        cut = newest.summary.get("cut") if newest is not None and newest.is_archived else None
        if newest is not None and cut:
            print_note(f"the record of {newest.name} is incomplete: {'; '.join(cut)}")
