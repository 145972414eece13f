"""Find the experiment that the arguments of a command mean, and the arguments after it.

The first argument is the name of an experiment, an experiment file, or ``EXPERIMENT/PROCESS``. It
can be omitted: the experiment is then the one that was launched from the working directory, and the
first argument is the first of the other arguments, such as a process.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands.lookup.resolve_names import EXPERIMENT, resolve_experiment
from symphony.commandline.commands.lookup.this_directory import LaunchedHere, is_file
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.output.terminal import print_note
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus


def find_experiment(line: Line, args: argparse.Namespace) -> ExperimentStatus:
    """Return the status of the experiment that the user meant, and complete ``args``.

    Afterwards, ``line.cluster`` is the cluster with the experiment. With ``--run``, it is the
    record that `use_run` has opened.
    """
    if getattr(args, "run", False):
        return resolve_experiment(line.cluster, args.experiment, exact=line.changes_something)
    return ExperimentFinder(line, args, line.get_subparser(args.verb)).find()


class ExperimentFinder:
    """Finds the experiment of the command ``line`` with the arguments ``args``.

    ``parser`` is the parser of the command.
    """

    def __init__(
        self, line: Line, args: argparse.Namespace, parser: argparse.ArgumentParser
    ) -> None:
        self._line = line
        self._args = args
        self._arguments = [
            action
            for action in parser._actions
            if not action.option_strings
            and action.dest != EXPERIMENT
            and action.help != argparse.SUPPRESS
        ]

    def find(self) -> ExperimentStatus:
        """Return the status of the experiment, and set the arguments and the cluster of the line.

        Raises `NotFound` if there is no such experiment, and `UsageError` if several are possible.
        """
        words = self._words()
        if len(words) <= self._required:
            return self._find_without_name(words)
        name, *rest = words
        if is_file(name):
            return self._use(*self._launched_from(Path(name)).require(), rest)
        if "/" in name:
            return self._find_with_process(words)
        return self._find_by_name(name, words)

    # --- the forms of the first argument ---

    def _find_without_name(self, words: Sequence[str]) -> ExperimentStatus:
        if words and "/" in words[0]:
            return self._find_with_process(words)
        return self._use_default(words)

    def _find_with_process(self, words: Sequence[str]) -> ExperimentStatus:
        """Find the experiment for ``EXPERIMENT/PROCESS``, or for ``GROUP/PROCESS`` of the default
        experiment.
        """
        name, _, process = words[0].partition("/")
        try:
            cluster, status = self._resolved(name, exact=True)
        except NotFound:
            return self._use_default(words)
        found = self._launched_from(None).find()
        if found is not None and found[1].name != status.name and self._is_part(*found, words[0]):
            raise UsageError(
                f"{words[0]!r} can mean process {process!r} of experiment {name!r}, or a process "
                f"of group {name!r}; name the experiment in an argument of its own"
            )
        return self._use(cluster, status, [process, *words[1:]])

    def _find_by_name(self, name: str, words: Sequence[str]) -> ExperimentStatus:
        try:
            return self._use(*self._resolved(name, exact=True), words[1:])
        except NotFound as exc:
            error = exc
        launched = self._launched_from(None)
        found = launched.find()
        is_part = found is not None and self._is_part(*found, name)
        if found is not None and is_part and len(words) <= self._possible:
            self._report(found[1].name, launched.place)
            return self._use(*found, words)
        if found is not None and is_part:
            raise self._with_experiment(error, found[1].name, words)
        if found is not None:
            error = _with_suggestion(error, name, found[1])
        if self._line.changes_something:
            raise error
        try:
            return self._use(*self._resolved(name, exact=False), words[1:])
        except NotFound:
            raise error from None

    # --- the default experiment ---

    def _use_default(self, words: Sequence[str]) -> ExperimentStatus:
        """Make the command use the experiment that was launched from the working directory, and
        report which.
        """
        launched = self._launched_from(None)
        found = launched.require()
        self._report(found[1].name, launched.place)
        return self._use(*found, words)

    def _report(self, name: str, source: str) -> None:
        print_note(f"{self._line.prog}: experiment {name} ({source})")

    def _resolved(self, name: str, *, exact: bool) -> tuple[Cluster, ExperimentStatus]:
        """Return the status and the cluster of the experiment that ``name`` means."""
        cluster = self._line.cluster_with(name, exact=exact)
        return cluster, resolve_experiment(cluster, name, exact=exact)

    def _launched_from(self, file: Path | None) -> LaunchedHere:
        return LaunchedHere(
            self._line.selected_cluster, only_selected=self._line.names_backend, given=file
        )

    def _with_experiment(self, error: NotFound, experiment: str, words: Sequence[str]) -> NotFound:
        """Return ``error`` with the line that names the experiment of the directory."""
        import shlex

        if not self._arguments:
            return NotFound(
                f"{error}; {words[0]!r} is part of {experiment}, and {self._args.verb} takes only "
                f"experiments; for one process, use: {self._line.prog} stop {words[0]}"
            )
        # Without the command of exec, there are more arguments than the line can have.
        command = getattr(self._args, "remainder", [])
        following = [*words, *command] if command else words[:1]
        line = shlex.join([self._args.verb, experiment, *following])
        return NotFound(
            f"{error}; {words[0]!r} is part of {experiment}: name the experiment, as in "
            f"{self._line.prog} {line}"
        )

    def _is_part(self, cluster: Cluster, status: ExperimentStatus, word: str) -> bool:
        """Return whether a word is the complete name of a part of an experiment that the command
        accepts: a process, a group, a pattern, or a service.
        """
        from symphony.support.select_names import matching_names

        word = word.partition("=")[0].partition(":")[0]
        takes_services = {action.dest for action in self._arguments} & {"service", "target"}
        if takes_services and word in _services(cluster, status.name):
            return True
        return "service" not in takes_services and bool(matching_names(status.processes, word))

    # --- arguments ---

    def _words(self) -> list[str]:
        """Return the arguments in the order in which the user gave them."""
        values = [getattr(self._args, EXPERIMENT)]
        for action in self._arguments:
            value = getattr(self._args, action.dest)
            values += value if isinstance(value, list) else [value]
        return [value for value in values if value is not None]

    @property
    def _required(self) -> int:
        """The number of arguments that the command needs after the experiment."""
        return sum(action.nargs in (None, "+") for action in self._arguments)

    @property
    def _possible(self) -> float:
        """The number of arguments that the command accepts after the experiment."""
        if any(action.nargs in ("*", "+") for action in self._arguments):
            return float("inf")
        return len(self._arguments)

    def _use(
        self, cluster: Cluster, status: ExperimentStatus, words: Sequence[str]
    ) -> ExperimentStatus:
        """Make the command use an experiment, with ``words`` as its other arguments."""
        self._line.cluster = cluster
        rest: list[str] = list(words)
        values: dict[str, Any] = {EXPERIMENT: status.name}
        for action in self._arguments:
            if action.nargs in ("*", "+"):
                values[action.dest] = rest
            else:
                values[action.dest] = rest.pop(0) if rest else None
        vars(self._args).update(values)
        return status


def _services(cluster: Cluster, experiment: str) -> list[str]:
    """Return the names of the services of an experiment, or none if they cannot be read."""
    try:
        return [service.name for service in cluster.describe_topology(experiment).services]
    except SymphonyError:
        return []


def _with_suggestion(error: NotFound, word: str, status: ExperimentStatus) -> NotFound:
    """Return ``error``, or an error that suggests a process of the experiment of the directory."""
    from symphony.support.names import did_you_mean

    hint = did_you_mean(word, [process.name for process in status])
    if not hint:
        return error
    return NotFound(f"no experiment {word!r}, and {status.name} has no such process{hint}")
