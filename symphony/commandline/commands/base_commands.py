"""The base class of the command classes, with the arguments and helpers that several commands
share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands import (
    chosen_file,
    find_experiment,
    find_run,
    next_steps,
    shared_arguments,
    show_manifest,
)
from symphony.commandline.commands.line import Line
from symphony.commandline.commands.resolve_names import TYPE_MORE
from symphony.commandline.parsing.dispatch import METHOD_CHECKS
from symphony.support.argument_checks import check_methods

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import Manifest
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus, ProcessStatus


# The keys of an experiment file that options of the command line with the same names replace.
_REPLACEABLE_KEYS = ("name", "ends_with", "on_failure", "deadline")


class BaseCommands(Line):
    """A set of related commands.

    For each command, ``_add_<command>`` declares its arguments and ``action_<command>`` runs it.
    The docstring of ``action_<command>`` is the command's help text.

    To keep the start-up time of short commands low, each method imports the modules that it needs.
    """

    # --- names ---

    def _find_experiment(self, args: argparse.Namespace) -> ExperimentStatus:
        """Return the status of the experiment that the user meant, and complete ``args``.

        Afterwards, `cluster` is the cluster with the experiment. With ``--run``, it is the record
        that `_use_run` has opened.
        """
        return find_experiment.find_experiment(self, args)

    def _resolve_experiment(self, given: str | None) -> ExperimentStatus:
        """Return the status of the experiment that a word means; see `resolve_experiment`."""
        from symphony.commandline.commands.resolve_names import resolve_experiment

        return resolve_experiment(self.cluster, given, exact=self.changes_something)

    def _resolve_processes(
        self, status: ExperimentStatus, names: Sequence[str]
    ) -> list[ProcessStatus]:
        """Return the processes that the user meant; see `resolve_processes`."""
        from symphony.commandline.commands.resolve_names import resolve_processes

        return resolve_processes(status, names, exact=self.changes_something)

    def _resolve_process(
        self, status: ExperimentStatus, name: str, *, fix: str = TYPE_MORE
    ) -> ProcessStatus:
        """Return the one process that the user meant; see `resolve_process`."""
        from symphony.commandline.commands.resolve_names import resolve_process

        return resolve_process(status, name, exact=self.changes_something, fix=fix)

    def _find_run(self, given: str) -> Run:
        """Return the run that the user meant. Raises `NotFound` if there is none.

        ``given`` can be the beginning of a run's identifier if the command changes nothing.
        """
        return find_run.find_run(self, given)

    # --- arguments ---

    def _add_experiment_name(
        self, parser: argparse.ArgumentParser, *, required: bool = True, positional: bool = True
    ) -> None:
        """Add an argument that sets ``args.experiment``.

        The argument is positional, or ``-e`` or ``--experiment`` if ``positional`` is false. If
        the argument is optional and not given, ``args.experiment`` is None.
        """
        shared_arguments.add_experiment_name(parser, required=required, positional=positional)

    def _add_experiment(self, parser: argparse.ArgumentParser) -> None:
        """Add an optional argument that `_find_experiment` reads."""
        shared_arguments.add_experiment(parser)

    def _add_processes(self, parser: argparse.ArgumentParser, *, nargs: str = "*") -> None:
        """Add positional arguments that set ``args.processes`` and select processes."""
        shared_arguments.add_processes(parser, nargs=nargs)

    def _add_component_arg(self, parser: argparse.ArgumentParser) -> None:
        """Add a positional argument that sets ``args.process``."""
        shared_arguments.add_process(parser)

    def _add_file(
        self,
        parser: argparse.ArgumentParser,
        *,
        metavar: str = "FILE",
        text: str = "YAML or JSON file, or Python file with build(exp)",
    ) -> None:
        """Add the arguments for the experiment file, the experiment's name and its parameters.

        The file can be omitted or be the value of an option; see `_choose_file`.
        """
        shared_arguments.add_file(parser, metavar=metavar, text=text)

    def _add_file_option(self, parser: argparse.ArgumentParser) -> None:
        """Add ``-f``, with which other programs name the file. The help omits it."""
        shared_arguments.add_file_option(parser)

    def add_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--dry-run`` and ``--dry-run-server``.

        ``args.dry_run`` is False, True or ``"server"``. `symphony.Cluster.launch` accepts the same
        values for ``dry_run``.
        """
        shared_arguments.add_dry_run(parser)

    def _add_client_dry_run(
        self,
        parser: argparse.ArgumentParser,
        text: str = "show what would be done; change nothing",
    ) -> None:
        """Add ``--dry-run`` to a command that has nothing for a server to validate."""
        shared_arguments.add_client_dry_run(parser, text)

    def _add_hidden_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Accept ``--dry-run`` for a command that never changes anything.

        Every command accepts this option, so that scripts can add it to any command. The help of a
        command that never changes anything omits the option, because it has no effect.
        """
        parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)

    def _add_watch(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--watch``."""
        shared_arguments.add_watch(parser)

    def _add_timeout(self, parser: argparse.ArgumentParser, condition: str = "") -> None:
        """Add ``--timeout``. In its help text, ``condition`` is the option that it requires."""
        shared_arguments.add_timeout(parser, condition)

    @staticmethod
    def _add_show_secrets(parser: argparse.ArgumentParser) -> None:
        """Add the option ``--show-secrets``."""
        shared_arguments.add_show_secrets(parser)

    def _add_json(self, parser: argparse.ArgumentParser, what: str = "JSON") -> None:
        """Add ``--json``. Its help text is "print" followed by ``what``."""
        parser.add_argument("--json", action="store_true", help=f"print {what}")

    def _add_run_option(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--run``."""
        shared_arguments.add_run_option(parser)

    def _use_run(self, args: argparse.Namespace, dest: str = "experiment") -> None:
        """With ``--run``, make this command read the record of the run that the user named.

        ``dest`` is the argument with the name of the run. It becomes the name of the experiment.
        """
        find_run.use_run(self, args, dest)

    # --- helpers for commands that take an experiment file ---

    def _choose_file(self, args: argparse.Namespace) -> None:
        """Set ``args.file`` to the experiment file.

        It is the argument FILE, the value of ``-f``, or else the experiment file of the working
        directory or its nearest parent. If ``-f`` is given, the argument FILE is the first PROCESS.
        """
        chosen_file.choose_file(self, args)

    def _load_experiment(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment from ``args.file`` with the given name and parameters.

        Raises `SpecError` or `NotFound` if the experiment cannot be loaded.
        """
        return chosen_file.load_experiment(self, args)

    def _show_dry_run(self, experiment: Experiment, args: argparse.Namespace) -> None:
        """Print the manifest that a launch of the experiment would create, and the answer of the
        backend's server if it validates the manifest.
        """
        show_manifest.show_dry_run(self, experiment, args)

    def _show_manifest(self, manifest: Manifest, as_json: bool) -> None:
        """Print a manifest as text or as JSON."""
        show_manifest.show_manifest(manifest, as_json)

    def _check_timeout(self, args: argparse.Namespace) -> None:
        """Raise `UsageError` if ``--timeout`` is given without ``--wait``."""
        shared_arguments.check_timeout(args)

    def _exposed_services(self, experiment: str) -> dict[str, str | None]:
        """Return the exposed services of an experiment with their addresses, as far as the backend
        can determine them.
        """
        return next_steps.exposed_services(self, experiment)

    def _address_lines(self, experiment: Experiment) -> list[str]:
        """Return the result of `_exposed_lines`. An experiment that exposes no service is not asked
        for, because reading the services of a large experiment takes time.
        """
        return next_steps.address_lines(self, experiment)

    def _exposed_lines(self, experiment: str) -> list[str]:
        """Return a line for each exposed service, with its URL or the command that finds it."""
        return next_steps.exposed_lines(self, experiment)

    def _next_commands(self, experiment: str) -> list[str]:
        """Return lines that suggest commands for a newly launched experiment."""
        return next_steps.next_commands(self, experiment)


check_methods(BaseCommands, METHOD_CHECKS, also=("_add_experiment_name", "_add_component_arg"))
