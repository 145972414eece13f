"""The base class of the command classes, with the arguments and helpers that several commands
share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from symphony.commandline.commands.resolve_names import EXPERIMENT, TYPE_MORE
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.arguments import (
    DRY_RUN_SERVER,
    parse_parameter,
    parse_seconds,
)
from symphony.commandline.parsing.dispatch import METHOD_CHECKS, CommandLine
from symphony.support.argument_checks import check_methods

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.archive.archive import Run
    from symphony.cluster import Cluster, Manifest
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus, ProcessStatus


# The keys of an experiment file that options of the command line with the same names replace.
_REPLACEABLE_KEYS = ("name", "ends_with", "on_failure", "deadline")


class BaseCommands(CommandLine):
    """A set of related commands.

    For each command, ``_add_<command>`` declares its arguments and ``action_<command>`` runs it.
    The docstring of ``action_<command>`` is the command's help text.

    To keep the start-up time of short commands low, each method imports the modules that it needs.
    """

    _loaded_file: Path | None = None

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster on which the command works.

        If the command takes an experiment, it is the cluster with this experiment; see
        `cluster_with`. Otherwise, it is the cluster that the user selects.
        """
        if not hasattr(self.args, "experiment"):
            return self.selected_cluster
        return self.cluster_with(self.args.experiment)

    def cluster_with(self, experiment: str | None, *, exact: bool | None = None) -> Cluster:
        """Return the cluster with an experiment, which can be on another backend than the selected
        one if the user names no backend.

        ``experiment`` is a name, None or ``"."``, which both mean the current experiment. Unless
        ``exact`` is set, it can be the beginning of a name; by default, this is possible if the
        command changes nothing. If no backend has the experiment, the result is the selected
        cluster. Raises `UsageError` if several backends have it.
        """
        if self.names_backend:
            return self.selected_cluster
        from symphony.commandline.commands import find_backend
        from symphony.commandline.commands.current_experiment import current_backend
        from symphony.commandline.commands.resolve_names import CURRENT

        selected = self.selected_cluster
        if experiment is None or experiment == CURRENT:
            return find_backend.cluster_of(current_backend(selected.backend), selected)
        exact = self.changes_something if exact is None else exact
        return find_backend.find_cluster(selected, experiment, exact=exact)

    # --- names ---

    def _find_experiment(self, args: argparse.Namespace) -> ExperimentStatus:
        """Return the status of the experiment that the user meant, and complete ``args``.

        Afterwards, `cluster` is the cluster with the experiment. With ``--run``, it is the record
        that `_use_run` has opened.
        """
        from symphony.commandline.commands.find_experiment import ExperimentFinder

        if getattr(args, "run", False):
            return self._resolve_experiment(args.experiment)
        return ExperimentFinder(self, args, self.get_subparser(args.verb)).find()

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
        from symphony.archive.archive import find_run
        from symphony.commandline.output.terminal import print_note

        run = find_run(self.cluster.list_runs(), given, exact=self.changes_something)
        if given not in (run.name, run.experiment):
            print_note(f"run {given!r} is {run.name}")
        return run

    # --- arguments ---

    def _add_experiment_name(
        self, parser: argparse.ArgumentParser, *, required: bool = True, positional: bool = True
    ) -> None:
        """Add an argument that sets ``args.experiment``.

        The argument is positional, or ``-e`` or ``--experiment`` if ``positional`` is false. If
        the argument is optional and not given, ``args.experiment`` is None.
        """
        text = "experiment name; . is the current experiment"
        if positional:
            parser.add_argument(
                "experiment", metavar="EXPERIMENT", nargs=None if required else "?", help=text
            )
        else:
            parser.add_argument(
                "-e", "--experiment", metavar="EXPERIMENT", required=required, help=text
            )

    def _add_experiment(self, parser: argparse.ArgumentParser) -> None:
        """Add an optional argument that `_find_experiment` reads."""
        parser.add_argument(
            EXPERIMENT,
            metavar="EXPERIMENT",
            nargs="?",
            help="experiment name; . is the current experiment (default: the experiment that was "
            "launched from this directory)",
        )

    def _add_processes(self, parser: argparse.ArgumentParser, *, nargs: str = "*") -> None:
        """Add positional arguments that set ``args.processes`` and select processes."""
        parser.add_argument(
            "processes",
            metavar="PROCESS",
            nargs=nargs,
            help="process, group, or pattern such as 'agent-*'"
            + (" (default: all processes)" if nargs == "*" else ""),
        )

    def _add_component_arg(self, parser: argparse.ArgumentParser) -> None:
        """Add a positional argument that sets ``args.process``."""
        parser.add_argument(
            "process",
            metavar="PROCESS",
            help="process name, or group/name",
        )

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
        default = " (default: the experiment file of this directory)"
        parser.add_argument("file", metavar=metavar, nargs="?", help=f"{text}{default}")
        self._add_file_option(parser)
        parser.add_argument(
            "--name", metavar="NAME", help="override the experiment name in the file"
        )
        parser.add_argument(
            "--set",
            dest="parameters",
            metavar="NAME=VALUE",
            action="append",
            type=parse_parameter,
            default=[],
            help="set a parameter that the file declares; repeatable",
        )

    def _add_file_option(self, parser: argparse.ArgumentParser) -> None:
        """Add ``-f``, with which other programs name the file. The help omits it."""
        parser.add_argument(
            "-f", "--file", dest="file_option", metavar="FILE", help=argparse.SUPPRESS
        )

    def add_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--dry-run`` and ``--dry-run-server``.

        ``args.dry_run`` is False, True or ``"server"``. `symphony.Cluster.launch` accepts the same
        values for ``dry_run``.
        """
        parser.add_argument(
            "--dry-run",
            action="store_const",
            const=True,
            default=False,
            help="show what would be done; change nothing",
        )
        parser.add_argument(
            DRY_RUN_SERVER,
            dest="dry_run",
            action="store_const",
            const="server",
            help="also have the backend's server validate every object (or: --dry-run=server)",
        )

    def _add_client_dry_run(
        self,
        parser: argparse.ArgumentParser,
        text: str = "show what would be done; change nothing",
    ) -> None:
        """Add ``--dry-run`` to a command that has nothing for a server to validate."""
        parser.add_argument("--dry-run", action="store_true", help=text)

    def _add_hidden_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Accept ``--dry-run`` for a command that never changes anything.

        Every command accepts this option, so that scripts can add it to any command. The help of a
        command that never changes anything omits the option, because it has no effect.
        """
        parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)

    def _add_watch(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--watch``."""
        parser.add_argument(
            "-w", "--watch", action="store_true", help="refresh the table until Ctrl-C"
        )

    def _add_timeout(self, parser: argparse.ArgumentParser, condition: str = "") -> None:
        """Add ``--timeout``. In its help text, ``condition`` is the option that it requires."""
        text = "give up after this time, in seconds or with a unit, such as 5m"
        parser.add_argument(
            "--timeout",
            metavar="TIME",
            type=parse_seconds,
            help=f"with {condition}, {text}" if condition else text,
        )

    @staticmethod
    def _add_show_secrets(parser: argparse.ArgumentParser) -> None:
        """Add the option ``--show-secrets``."""
        parser.add_argument(
            "--show-secrets",
            action="store_true",
            help="show the values of variables and parameters whose names suggest a secret",
        )

    def _add_json(self, parser: argparse.ArgumentParser, what: str = "JSON") -> None:
        """Add ``--json``. Its help text is "print" followed by ``what``."""
        parser.add_argument("--json", action="store_true", help=f"print {what}")

    def _add_run_option(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--run``."""
        parser.add_argument(
            "--run",
            action="store_true",
            help="EXPERIMENT is a run instead, which may have been deleted; see history",
        )

    def _use_run(self, args: argparse.Namespace, dest: str = "experiment") -> None:
        """With ``--run``, make this command read the record of the run that the user named.

        ``dest`` is the argument with the name of the run. It becomes the name of the experiment.
        """
        if args.run:
            experiment = self._open_run(getattr(args, dest))
            setattr(args, dest, experiment)

    def _open_run(self, given: str | None) -> str:
        """Make this command read the record of a run, and return the name of its experiment."""
        from symphony.cluster.run_results import open_run

        if given is None:
            raise UsageError("--run needs the name of a run; symphony history lists them")
        run = self._find_run(given)
        self.cluster = open_run(self.cluster, run)
        return run.experiment

    # --- helpers for commands that take an experiment file ---

    def _choose_file(self, args: argparse.Namespace) -> None:
        """Set ``args.file`` to the experiment file.

        It is the argument FILE, the value of ``-f``, or else the experiment file of the working
        directory or its nearest parent. If ``-f`` is given, the argument FILE is the first PROCESS.
        """
        from symphony.commandline.commands.this_directory import require_file, unused_files
        from symphony.commandline.output.terminal import print_note
        from symphony.support.names import join_names

        if args.file_option is not None:
            if args.file is not None and not hasattr(args, "processes"):
                raise UsageError(
                    f"two experiment files: {args.file_option} and {args.file}; name one"
                )
            if args.file is not None:
                args.processes.insert(0, args.file)
            args.file = args.file_option
        elif args.file is None:
            file = require_file(f"{self.prog} {args.verb}")
            args.file = str(file)
            unused = unused_files(file)
            hint = f" (it precedes {join_names(unused)})" if unused else ""
            print_note(f"{self.prog}: {file}{hint}")

    def _load_experiment(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment from ``args.file`` with the given name and parameters.

        Raises `SpecError` or `NotFound` if the experiment cannot be loaded.
        """
        from pathlib import Path

        from symphony.commandline.commands.experiment_files import load_experiment_file

        file = Path(args.file)
        experiment = load_experiment_file(self.cluster, file, args.name, dict(args.parameters))
        self._loaded_file = file
        return experiment

    def explained_error(self, error: BaseException) -> BaseException:
        """Return an error about the experiment that was loaded with its position in the file."""
        from symphony.commandline.commands.file_positions import with_position
        from symphony.errors import SpecError, SymphonyError

        if self._loaded_file is None or not isinstance(error, SpecError) or not error.path:
            return error
        key = error.path[0]
        if key in _REPLACEABLE_KEYS and getattr(self.args, key, None):
            # The error is in an option of the command line.
            return error
        try:
            return with_position(error, self._loaded_file)
        except (SymphonyError, OSError):
            # The file was changed or removed in the meantime.
            return error

    def _show_dry_run(self, experiment: Experiment, args: argparse.Namespace) -> None:
        """Print the manifest that a launch of the experiment would create, and the answer of the
        backend's server if it validates the manifest.
        """
        from symphony.commandline.output.terminal import print_note

        answers: list[str] = []
        manifest = self.cluster.dry_run(
            experiment,
            force=args.force,
            server=args.dry_run == "server",
            on_answer=answers.append,
        )
        self._show_manifest(manifest, args.json)
        for answer in answers:
            print_note(answer)

    def _show_manifest(self, manifest: Manifest, as_json: bool) -> None:
        """Print a manifest as text or as JSON."""
        from symphony.commandline.output.printing import show_json, show_text

        if as_json:
            show_json(manifest.to_dict())
        else:
            show_text(str(manifest))

    def _check_timeout(self, args: argparse.Namespace) -> None:
        """Raise `UsageError` if ``--timeout`` is given without ``--wait``."""
        if args.timeout is not None and not args.wait:
            raise UsageError("--timeout limits how long --wait waits; add --wait")

    def _exposed_services(self, experiment: str) -> dict[str, str | None]:
        """Return the exposed services of an experiment with their addresses, as far as the backend
        can determine them.
        """
        from symphony.errors import SymphonyError

        try:
            return self.cluster.exposed_services(experiment)
        except SymphonyError:
            # The addresses are additional information. The command has done its work.
            return {}

    def _address_lines(self, experiment: Experiment) -> list[str]:
        """Return the result of `_exposed_lines`. An experiment that exposes no service is not asked
        for, because reading the services of a large experiment takes time.
        """
        if any(component.settings.exposes for component in experiment.list_components()):
            return self._exposed_lines(experiment.name)
        return []

    def _exposed_lines(self, experiment: str) -> list[str]:
        """Return a line for each exposed service, with its URL or the command that finds it."""
        from symphony.commandline.output.views import align_pairs

        services = self._exposed_services(experiment)
        if not services:
            return []
        location = "".join(f" {word}" for word in self._location_of(experiment))
        pairs = []
        for service, address in services.items():
            command = f"{self.prog} visit{location} {experiment} {service}"
            pairs.append((service, f"http://{address}" if address else f"address: {command}"))
        return align_pairs(pairs)

    def _location_of(self, experiment: str) -> list[str]:
        """Return the words that other commands need to find an experiment on this cluster."""
        from symphony.commandline.commands.find_backend import is_ambiguous

        backend = self.cluster.backend
        if not self.names_backend and is_ambiguous(backend, experiment):
            return ["-b", backend]
        return self.cluster_arguments

    def _next_commands(self, experiment: str) -> list[str]:
        """Return lines that suggest commands for a newly launched experiment."""
        from symphony.commandline.output.views import align_pairs

        location = "".join(f" {word}" for word in self._location_of(experiment))
        return align_pairs(
            [
                (f"{self.prog} ps{location} {experiment}", "show its processes"),
                (f"{self.prog} logs{location} -f {experiment}", "follow its logs"),
                (f"{self.prog} delete{location} {experiment}", "stop and delete it"),
            ]
        )


check_methods(BaseCommands, METHOD_CHECKS, also=("_add_experiment_name", "_add_component_arg"))
