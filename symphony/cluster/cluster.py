"""The class that users call. It is the same for all backends, except for `Backend`."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from symphony.cluster.matching import (
    ExperimentIsRunning,
    SelectedNames,
    Until,
    cannot_change,
    check_not_running,
    find_by_path,
    find_names,
    find_status,
    fuzzy_match,
    launch_in_progress,
    runs_from_elsewhere,
)
from symphony.cluster.results import ExecResult, Manifest, Tunnel, WatchedStatuses
from symphony.errors import (
    AlreadyExists,
    BackendError,
    NotFound,
    SpecError,
    SymphonyError,
    Unsupported,
    shown,
)
from symphony.status import ExperimentStatus, LogLine, ProcessStatus
from symphony.support.argument_checks import CHECKS, Check, check_methods
from symphony.support.attribute_checks import CheckedAttributes
from symphony.support.data_classes import replace
from symphony.support.names import check_is_text, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from symphony.archive.archive import Retention, Run
    from symphony.archive.archived_usage import RecordedUsage
    from symphony.cluster.backend import Backend, ChangeRequest, LaunchRequest, NamedProcess
    from symphony.cluster.running import Running, WaitFor
    from symphony.config import SymphonyConfig
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.model.experiment.given_options import GivenOptions
    from symphony.model.settings.validators import Code, Paths, Strings
    from symphony.plan.changes import Changes
    from symphony.plan.resolve import Defaults
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.support.hidden_values import HiddenValues
    from symphony.usage import ExperimentUsage


# A function to call with each status that differs from the previous one. The value can be None.
OnChange = Callable[[ExperimentStatus], None] | None

# A function that is called with the number of bytes copied so far and the total number of bytes,
# which is None if it is unknown.
Progress = Callable[[int, int | None], None]


class Cluster(CheckedAttributes):
    """An object that launches experiments and reports their status. Each backend defines one
    subclass, which adds the options of the backend.

    `implementation` does the steps that depend on the platform; see `symphony.cluster.backend`. A
    subclass can also override a method instead.

    ``preamble_cmds`` and ``start_dir`` apply to every experiment that this cluster launches. The
    commands run before the experiment's own preamble commands, and a relative ``start_dir`` of the
    experiment is relative to the cluster's ``start_dir``. Unless stated otherwise, every method
    that takes the name of an experiment raises `NotFound` if the experiment does not exist.
    """

    backend: ClassVar[str]
    # True if `exec_command` runs commands on this machine. They then receive Ctrl-C directly from
    # the terminal.
    commands_run_here: ClassVar[bool] = False
    # True if the ports of all processes are ports of this machine.
    ports_are_here: ClassVar[bool] = False
    # True if `exec_command` runs the preamble of the process before the command.
    exec_runs_preamble: ClassVar[bool] = True
    # True if several processes can run on one machine and share its ports. If False, only the
    # members of a group do.
    shares_ports: ClassVar[bool] = True
    # True if a plain dry run checks that no running experiment has the same name. If False, only
    # `dry_run="server"` makes this check, and a plain dry run sends no requests to the backend.
    dry_run_checks_name: ClassVar[bool] = True
    # True if every process must have a container image.
    requires_image: bool = False
    _parsers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "requires_image": lambda value: _flag(value, "requires_image")
    }
    # The keyword arguments of the constructor.
    given_options: Mapping[str, Any]
    # The names of the keyword arguments that determine how experiments are launched. They are
    # recorded, so that a later change of the experiment, or another launch, can keep them.
    launch_option_names: ClassVar[tuple[str, ...]] = ()
    # The options of earlier versions, each with what to do instead.
    _removed_options: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _resources: Mapping[str, str] = MappingProxyType({})
    _configuration: SymphonyConfig | None = None

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Keep the options, with which another process can create an equal cluster."""
        cluster = super().__new__(cls)
        vars(cluster)["given_options"] = options
        return cluster

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the public methods of a backend's class check their arguments."""
        super().__init_subclass__(**options)
        check_methods(cls, _CHECKS)

    def __init__(
        self, *, preamble_cmds: Strings | None = None, start_dir: str | None = None
    ) -> None:
        self._preamble_cmds = preamble_cmds
        self._start_dir = start_dir
        if preamble_cmds is not None or start_dir is not None:
            # Validate the options now, so that an invalid option raises an error here and not at
            # the first launch.
            _ = self.defaults

    def __copy__(self) -> Self:
        """Return a copy with an `implementation` of its own, because it depends on the options."""
        result = type(self).__new__(type(self))
        vars(result).update(vars(self))
        vars(result).pop("implementation", None)
        return result

    @functools.cached_property
    def implementation(self) -> Backend[Any]:
        """The part of the cluster that depends on the platform. A backend overrides this."""
        from symphony.cluster.backend import Backend

        return Backend(self.backend)

    @functools.cached_property
    def defaults(self) -> Defaults:
        """The default settings that this cluster applies to every experiment that it launches."""
        from symphony.model.settings.validators import nonempty_text, shell_lines
        from symphony.plan.resolve import Defaults

        preamble = self._preamble_cmds
        start_dir = self._start_dir
        return Defaults(
            preamble_cmds=(
                () if preamble is None else tuple(shell_lines(preamble, "preamble_cmds"))
            ),
            start_dir=None if start_dir is None else nonempty_text(start_dir, "start_dir"),
            resource_request=dict(self._resources),
            record_usage=bool(self.configuration.get("runs", {}).get("record_usage")),
        )

    @staticmethod
    def new(name: str | None = None, **options: Any) -> Cluster:
        """Return a cluster for a backend, which is ``local``, ``tmux``, ``kube`` or a third-party
        backend.

        ``name`` is the name or an alias of a backend. If it is None, the backend is taken from
        `SymphonyConfig`. ``options`` are keyword arguments for the backend's class. Options that
        are not given are taken from the configuration. Only the selected backend's module is
        imported.

        Raises `PluginError` if the backend cannot be loaded, and `SpecError` if an option is
        invalid.
        """
        from symphony.cluster.factory import create_cluster

        return create_cluster(Cluster, name, options)

    @classmethod
    def with_options(cls, name: str, options: Mapping[str, Any]) -> Cluster:
        """Return a cluster that is constructed with ``options`` as keyword arguments.

        ``name`` is the backend's name for error messages. Raises `SpecError` if the class does not
        accept one of the options. The error's ``path`` contains the name of this option.
        """
        if not isinstance(options, Mapping):
            raise SpecError(f"options must be a mapping, not {shown(options)}")
        # Reading the signatures takes as long as everything else that `ls` does before its work.
        known = cls.option_names() if options else []
        for option in options:
            check_is_text(option, "option")
            if option in cls._removed_options:
                raise SpecError(
                    f"the option {option!r} of the backend {name!r} was removed; "
                    f"{cls._removed_options[option]}",
                    path=(option,),
                )
            if option not in known:
                hint = did_you_mean(option, known)
                raise SpecError(f"backend {name!r} has no option {option!r}{hint}", path=(option,))
        return cls(**options)

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the keyword arguments that this class accepts.

        If a constructor takes ``**options``, the keyword arguments of its base class are included,
        because the constructor passes ``options`` on to the base class.
        """
        import inspect

        names: dict[str, None] = {}
        for base in cls.__mro__:
            if "__init__" not in vars(base):
                continue
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            kinds = {parameter.kind for parameter in parameters}
            for parameter in parameters:
                if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                    names[parameter.name] = None
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
        return list(names)

    def set_default_resources(self, resources: Mapping[str, str]) -> None:
        """Set the default resource requests, such as ``{"cpu": "2"}``. Each default applies to
        the processes that neither request nor limit the resource.
        """
        from symphony.config.fields import read_resources

        amounts = read_resources(resources)
        self._resources = {name: amount for name, amount in amounts.items() if amount is not None}
        vars(self).pop("defaults", None)

    @property
    def configuration(self) -> SymphonyConfig:
        """The configuration that applies to the experiments on this cluster.

        `Cluster.new` sets this attribute. A cluster that is constructed directly uses the program's
        `SymphonyConfig`.
        """
        if self._configuration is None:
            from symphony.config import SymphonyConfig

            self._configuration = SymphonyConfig()
        return self._configuration

    @configuration.setter
    def configuration(self, configuration: SymphonyConfig) -> None:
        from symphony.config import SymphonyConfig

        if not isinstance(configuration, SymphonyConfig):
            raise SpecError(f"configuration must be a SymphonyConfig, not {shown(configuration)}")
        self._configuration = configuration
        vars(self).pop("defaults", None)
        vars(self).pop("implementation", None)

    # --- describing ---

    def new_experiment(
        self,
        name: str,
        *,
        secrets: Any = None,
        port_range: Any = None,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
        code: Code | None = None,
        env: Mapping[str, object] | None = None,
        env_file: Paths | None = None,
        ends_with: Strings | None = None,
        on_failure: str | Mapping[str, Any] | None = None,
        deadline: float | str | None = None,
        record_usage: bool | None = None,
        resume: bool | None = None,
        sbatch_options: Strings | None = None,
    ) -> Experiment:
        """Return an empty experiment without launching anything. The keyword arguments are those of
        `Experiment`.

        If the configuration contains a user name, the experiment's name begins with it, as in
        ``sarah-rl``. Raises `SpecError` if the experiment's name is invalid.
        """
        from symphony.model import Experiment

        return Experiment(
            self.configuration.experiment_name(name),
            secrets=secrets,
            port_range=port_range,
            preamble_cmds=preamble_cmds,
            start_dir=start_dir,
            code=code,
            env=env,
            env_file=env_file,
            ends_with=ends_with,
            on_failure=on_failure,
            deadline=deadline,
            record_usage=record_usage,
            resume=resume,
            sbatch_options=sbatch_options,
        )

    def manifest(self, experiment: Experiment) -> Manifest:
        """Return the manifest of the objects that a launch would create, without creating them.

        Raises `SpecError` if the experiment cannot be launched.
        """
        manifest: Manifest = self.implementation.launch(
            self._launch_request(experiment, dry_run=True)
        )
        return manifest

    # --- launching ---

    def launch(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        queue: bool = False,
        dry_run: bool | Literal["server"] = False,
        on_change: OnChange = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Manifest:
        """Start an experiment, and return its manifest once all processes have been created that do
        not wait for others.

        If a running experiment has the same name, it is not changed and `AlreadyExists` is raised,
        unless ``force`` is set. With ``force``, the new experiment replaces it, whatever its origin
        is; see `check_origin`. An experiment that has finished is always replaced. If the launch
        fails, everything that it created is removed and `LaunchFailed` is raised.

        If `SymphonyConfig` sets an experiment directory, the experiment and its manifest are saved
        there. Replacing an experiment that is already saved there also requires ``force``.

        With ``queue``, a launch on this machine waits until enough GPUs are free for all processes,
        in the order in which such launches began. ``on_wait`` is called with the reason whenever it
        has changed. On Kubernetes and Slurm, it has no effect, because these have queues.

        With ``dry_run``, write the manifest to standard output and start nothing; see
        `Cluster.dry_run`. With ``dry_run="server"``, the backend's server also validates the
        manifest. A backend that takes some time to launch an experiment can call ``on_change``
        during the launch with each status that differs from the previous one. Other backends call
        it at most once, with a status whose note contains a warning.
        """
        if dry_run not in (True, False, "server"):
            raise SpecError(f"dry_run must be True, False or 'server', not {shown(dry_run)}")
        if not dry_run:
            with _errors_in_experiment_first(experiment), self._naming_the_origin(experiment):
                return self._launch_and_save(
                    experiment,
                    force=force,
                    on_change=on_change,
                    on_wait=(on_wait or _ignore) if queue else None,
                )
        manifest = self.dry_run(experiment, force=force, server=dry_run == "server")
        sys.stdout.write(str(manifest))
        return manifest

    def dry_run(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        server: bool = False,
        on_answer: Callable[[str], None] | None = None,
    ) -> Manifest:
        """Check that a launch would be accepted, and return its manifest.

        Nothing is created. With ``server``, the backend's server also validates the manifest, and
        ``on_answer`` is called with its answer, which is one line.
        Raises `AlreadyExists` if the name is in use and ``force`` is not set. If
        `dry_run_checks_name` is False, as on Kubernetes, the names of running experiments are
        checked only with ``server``.
        """
        if not force:
            with _errors_in_experiment_first(experiment), self._naming_the_origin(experiment):
                self._check_not_saved(experiment.name)
                if server or self.dry_run_checks_name:
                    check_not_running(self.describe_experiment, experiment.name)
        manifest = self.manifest(experiment)
        if server:
            answer = self.check(manifest)
            if on_answer is not None:
                on_answer(answer)
        return manifest

    def _check_not_saved(self, name: str) -> None:
        """Raise `AlreadyExists` if the experiment directory contains an experiment with this
        name.
        """
        directory = self.configuration.experiment_folder
        if directory is not None:
            from symphony.cluster.save_experiment import check_not_saved

            check_not_saved(name, directory)

    def check_origin(self, experiment: Experiment) -> None:
        """Raise `AlreadyExists` if an experiment of this name exists and has another origin.

        See `other_origin`.
        """
        origin = self.other_origin(experiment)
        if origin is not None:
            raise runs_from_elsewhere(experiment.name, origin)

    def other_origin(self, experiment: Experiment) -> str | None:
        """Return the origin of the existing experiment of this name if it differs from the origin
        of ``experiment``, or None if there is no such experiment.

        The origin of an experiment is the directory of its file, or the Git worktree that contains
        this directory. Origins do not differ if one of them is not known, or if the recorded origin
        does not exist on this machine.
        """
        from symphony.archive.origin import other_origin

        if experiment.file is None:
            return None
        try:
            record = self._launch_record(experiment.name)
        except SymphonyError:
            # The experiment does not exist, or its record does not contain its origin.
            return None
        return other_origin(record, experiment.file.parent)

    @contextlib.contextmanager
    def _naming_the_origin(self, experiment: Experiment) -> Iterator[None]:
        """If the block raises `ExperimentIsRunning` for an experiment with another origin, raise an
        error that names this origin.
        """
        try:
            yield
        except ExperimentIsRunning:
            self.check_origin(experiment)
            raise

    def _launch_and_save(
        self,
        experiment: Experiment,
        *,
        force: bool,
        on_change: OnChange,
        on_wait: Callable[[str], None] | None,
    ) -> Manifest:
        """Launch the experiment, and save it and its manifest if an experiment directory is
        configured.

        If they cannot be saved, the launched experiment is deleted.
        """
        request = self._launch_request(
            experiment, force=force, on_change=on_change, on_wait=on_wait
        )
        manifest: Manifest
        directory = self.configuration.experiment_folder
        if directory is None:
            manifest = self.implementation.launch(request)
            return manifest
        from symphony.cluster.save_experiment import saving

        with saving(experiment, self.backend, directory, force=force) as save:
            manifest = self.implementation.launch(request)
            try:
                save(manifest)
            except BaseException:
                self.delete(experiment.name)
                raise
        return manifest

    def _launch_request(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        dry_run: bool = False,
        on_change: OnChange = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> LaunchRequest:
        from symphony.cluster.backend import LaunchRequest

        return LaunchRequest(
            experiment=experiment,
            defaults=self.defaults,
            options=self._options_to_record(),
            force=force,
            dry_run=dry_run,
            on_change=on_change,
            on_wait=on_wait,
        )

    def running(
        self,
        experiment: Experiment,
        *,
        wait: WaitFor | None = "ready",
        timeout: float | str | None = None,
        force: bool = False,
    ) -> contextlib.AbstractContextManager[Running]:
        """Return a context manager that launches an experiment, and deletes it after the block.

        The experiment is also deleted if this program ends in the block for any reason, such as
        SIGKILL. The record of the run remains. The block begins when every process has started or,
        with ``wait="ready"``, is ready. With ``wait=None``, it begins immediately. Raises
        `LaunchFailed` if a process has failed or was not ready in time, and `TimeoutError` if this
        takes longer than ``timeout``, in seconds or with a unit such as ``"2m"``.

        >>> with cluster.running(experiment) as service:  # doctest: +SKIP
        ...     urllib.request.urlopen(service.url("web"))
        """
        from symphony.cluster.running import running

        return running(self, experiment, wait=wait, timeout=timeout, force=force)

    def check(self, manifest: Manifest) -> str:
        """Have the backend's server validate ``manifest`` without creating anything.

        Return the server's answer, which is one line, if it would accept the manifest. Otherwise,
        an error is raised. Raises `Unsupported` if the backend has no server.
        """
        return self.implementation.check(manifest)

    def launch_batch(
        self, experiments: Iterable[Experiment], *, force: bool = False, dry_run: bool = False
    ) -> list[Manifest]:
        """Launch several experiments in order.

        If a launch fails, the experiments that have already been launched continue to run and the
        remaining experiments are not launched.
        """
        from symphony.model import Experiment
        from symphony.model.settings.validators import instances

        # Check all elements before the first launch.
        given = instances(experiments, Experiment, "experiments")
        return [self.launch(experiment, force=force, dry_run=dry_run) for experiment in given]

    def stop(self, experiment: str, *, at_once: bool = False) -> None:
        """Stop an experiment for good, but keep its logs and its status.

        Its ports and GPUs are free afterwards. To start its processes again later, use
        `stop_processes` instead. With ``at_once``, processes are killed without a grace period.
        Raises `Unsupported` if the backend cannot keep a stopped experiment.
        """
        from symphony.cluster.process_requests import end_experiment

        end_experiment(self, experiment, at_once=at_once)

    # --- changing ---

    def diff(self, experiment: Experiment, *, start: Sequence[str] | None = None) -> Changes:
        """Return how a running experiment differs from ``experiment``, without changing anything.

        The result states for each process whether `up` would add, remove, restart, start or update
        it, and why. If no experiment with this name is running, all processes are added, because
        `up` would launch the experiment. ``start`` is the same as for `up`. Raises `SpecError` if
        ``experiment`` cannot be launched.
        """
        return self.implementation.change(self._change_request(experiment, start, dry_run=True))

    def _change_request(
        self, experiment: Experiment, start: Sequence[str] | None, *, dry_run: bool = False
    ) -> ChangeRequest:
        from symphony.cluster.backend import ChangeRequest

        return ChangeRequest(
            experiment=experiment,
            defaults=self.defaults,
            options=self._options_to_record(),
            start=start,
            dry_run=dry_run,
        )

    def up(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        on_change: OnChange = None,
        start: Sequence[str] | None = None,
    ) -> Changes:
        """Make what is running equal to ``experiment``, and return what was changed.

        If no experiment with this name is running, it is launched. Otherwise, new processes are
        started, processes that ``experiment`` does not contain are stopped and removed, and changed
        processes are restarted in start order. Processes that have failed, were stopped or were
        never started are started; ``start`` limits these to the processes with the given names. All
        others keep running, with the same pids or Pods, ports and GPUs. Some settings are changed
        without a restart.

        If the call is interrupted, the running experiment is the previous or the new one, and
        another call completes the change. Two calls at once do not mix: one of them waits or is
        refused. `AlreadyExists` is raised if the running experiment has another origin; see
        `check_origin`. It is also raised if the experiment would have to be launched again for a
        change, unless ``force`` is set. ``on_change`` is called with each status that differs from
        the previous one.
        """
        from symphony.code.take_snapshots import packing_once

        with packing_once():
            return self._up(experiment, force=force, on_change=on_change, start=start)

    def _up(
        self,
        experiment: Experiment,
        *,
        force: bool,
        on_change: OnChange,
        start: Sequence[str] | None,
    ) -> Changes:
        changes = self.diff(experiment, start=start)
        if changes.launch and not force:
            with contextlib.suppress(ExperimentIsRunning):
                manifest = self.launch(experiment, on_change=on_change)
                return replace(changes, notes=manifest.notes)
            # Another command has launched the experiment since it was compared.
            changes = self.diff(experiment, start=start)
            if changes.launch:
                raise launch_in_progress(experiment.name)
        if not changes.launch:
            self.check_origin(experiment)
        if force and (changes.launch or changes.relaunch):
            if changes.other_backend:
                Cluster.new(changes.other_backend).delete(experiment.name)
            manifest = self.launch(experiment, force=True, on_change=on_change)
            return replace(changes, notes=manifest.notes)
        if changes.relaunch:
            raise cannot_change(changes)
        changes = self.implementation.change(self._change_request(experiment, start))
        if on_change is not None:
            on_change(self.describe_experiment(experiment.name))
        return changes

    def scale(
        self, experiment: str, replicas: Mapping[str, int | str], *, on_change: OnChange = None
    ) -> Changes:
        """Change the numbers of replicas of a running experiment, and return what was changed.

        ``replicas`` maps the names of replicated processes or groups to numbers, such as
        ``{"agent": 16}``, or to differences, such as ``{"agent": "+2"}``. Of the processes that
        have exited, only the replicas with these names are started. Otherwise, the method is the
        same as `up`. Raises `SpecError` if the experiment was not loaded from a file.
        """
        from symphony.cluster.scale import replica_names

        scaled = self.scaled_experiment(experiment, replicas)
        return self.up(scaled, on_change=on_change, start=replica_names(scaled, replicas))

    def scaled_experiment(self, experiment: str, replicas: Mapping[str, int | str]) -> Experiment:
        """Return the description of a running experiment with other numbers of replicas.

        The arguments are those of `scale`. `diff` shows what `scale` would change.
        """
        from symphony.cluster.scale import scaled_experiment

        return scaled_experiment(self._launch_record(experiment), replicas)

    def described_experiment(self, experiment: str) -> Experiment:
        """Return the description with which a running experiment was launched, or to which it was
        changed last. `up` with this description changes nothing.

        The processes keep the code that they have now, as far as it is recorded on this machine.
        """
        from symphony.archive.code_archives import read_archives
        from symphony.cluster.described import described_experiment

        described = described_experiment(self._launch_record(experiment))
        run = self.implementation.recorded_runs.find(experiment)
        if run is not None:
            described.recorded_code = read_archives(run.path)
        return described

    def _options_to_record(self) -> dict[str, Any]:
        """Return the given options that determine how experiments are launched."""
        options = {}
        for name, value in self.given_options.items():
            if name in self.launch_option_names:
                options[name] = list(value) if isinstance(value, tuple) else value
        return options

    def without_kept_options(self) -> Cluster:
        """Return a copy of this cluster whose `up` does not keep the options with which another
        cluster has launched the experiment. Options that are not given have their defaults.
        """
        import copy
        import inspect

        defaults: dict[str, Any] = {}
        for base in type(self).__mro__:
            if "__init__" in vars(base):
                for parameter in inspect.signature(vars(base)["__init__"]).parameters.values():
                    if parameter.name in self.launch_option_names:
                        defaults.setdefault(parameter.name, parameter.default)
        result = copy.copy(self)
        vars(result)["given_options"] = {**defaults, **self.given_options}
        return result

    def launch_options(self, experiment: str) -> GivenOptions:
        """Return the options with which the user has loaded the file of an existing experiment,
        such as the values of parameters.

        There are none if the experiment does not exist, or if its description cannot be read.
        """
        from symphony.model.experiment.given_options import GivenOptions

        try:
            record = self._launch_record(experiment)
        except SymphonyError:
            return GivenOptions()
        return GivenOptions.from_dict(record.get("given"))

    def debugged_processes(self, experiment: str) -> dict[str, str]:
        """Return the processes that `symphony debug` has put under a debugger.

        The values identify the commands that have done this.
        """
        from symphony.cluster.described import debug_sessions

        return debug_sessions(self._launch_record(experiment)["definition"])

    def _launch_record(self, experiment: str) -> Mapping[str, Any]:
        """Return the description of the launch of a running experiment, or of its latest change.

        See `symphony.archive.run_record.launch_record`.
        """
        from symphony.archive.run_record import RECORD_FILE, parse_json

        backend = self.implementation
        content = backend.record(experiment, RECORD_FILE).get(RECORD_FILE)
        record = None if content is None else parse_json(content)
        if record is not None:
            return record
        run = backend.recorded_runs.find(experiment)
        if run is not None:
            raise BackendError(
                f"the record of experiment {experiment!r} cannot be read "
                f"({run.path / RECORD_FILE} is missing or damaged); launch it again"
            )
        raise Unsupported(f"the {backend.name} backend keeps no description of {experiment!r}")

    # --- controlling processes ---

    def stop_processes(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        grace: float | str | None = None,
        at_once: bool = False,
        timeout: float | str | None = None,
    ) -> list[ProcessStatus]:
        """Stop processes, wait until they have exited, and return their statuses.

        Each element of ``processes`` is the name of a process, ``group/process``, a group, or a
        process or group with a count, such as ``agent`` for ``agent-0`` to ``agent-7``. It can also
        be a pattern, such as ``agent-*``. None selects all processes.

        A process receives SIGTERM, and is killed if it is still running after ``grace``, by default
        its own grace period. With ``at_once``, it is killed immediately. Its restart policy
        does not apply. The experiment does not finish while it has a process that was stopped in
        this way, so that `start_processes` can start the process again.

        `TimeoutError` is raised when ``timeout`` expires, and the stop goes on. ``grace`` and
        ``timeout`` are in seconds or have a unit, such as ``"5m"``.
        Raises `NotFound` if a name selects no process, and `Unsupported` if the backend cannot
        control single processes.
        """
        from symphony.cluster.process_requests import grace_seconds, request_processes

        seconds = grace_seconds(grace, at_once)
        return request_processes(
            self, "stop", experiment, processes, grace=seconds, timeout=timeout
        )

    def start_processes(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        timeout: float | str | None = None,
    ) -> list[ProcessStatus]:
        """Start processes that were stopped or have exited, and return their statuses.

        The arguments are those of `stop_processes`. If ``processes`` is None, a process that has
        succeeded and for whose success other processes wait does not run again; see
        `finished_one_shots`. A process starts when its start conditions are
        met, with the same addresses, GPUs and environment as before. Its output is added to its
        log. The method returns when each process has started or waits for its conditions. Processes
        that are running are not changed. A process that is being stopped or restarted starts when
        this is done. Raises `BackendError` if the experiment has finished.
        """
        from symphony.cluster.process_requests import request_processes

        return request_processes(self, "start", experiment, processes, timeout=timeout)

    def restart_processes(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        grace: float | str | None = None,
        at_once: bool = False,
        timeout: float | str | None = None,
    ) -> list[ProcessStatus]:
        """Stop processes, start them again, and return their statuses.

        This method combines `stop_processes` and `start_processes`, and has the same arguments. The
        processes keep their GPUs. Processes that are not running are only started.
        """
        from symphony.cluster.process_requests import grace_seconds, request_processes

        seconds = grace_seconds(grace, at_once)
        return request_processes(
            self, "restart", experiment, processes, grace=seconds, timeout=timeout
        )

    def finished_one_shots(self, status: ExperimentStatus) -> list[str]:
        """Return the names of the processes that have succeeded and for whose success others wait.

        For example, such a process migrates a database. It runs again only if it is named in
        `start_processes` or `restart_processes`, or if `up` changes its own settings. ``status`` is
        the current status of the experiment.
        """
        from symphony.plan.one_shots import finished_in, in_whole_groups

        if not any(process.state.value == "succeeded" for process in status):
            return []
        try:
            finished = finished_in(status, self.describe_topology(status.name))
        except Unsupported:
            return []
        if self.implementation.groups_start_together:
            return in_whole_groups(finished, status)
        return finished

    def signal_processes(
        self,
        experiment: str,
        processes: Sequence[str] | None,
        signal: int | str,
        *,
        force: bool = False,
    ) -> list[ProcessStatus]:
        """Send a signal to running processes, and return their statuses.

        ``processes`` selects processes as in `stop_processes`. ``signal`` is a number or a name,
        such as ``"HUP"`` or ``"SIGUSR1"``. Of the programs of a process, those receive the signal
        that handle it and are reached only through programs that do not, such as shells. If no
        program handles it, all of them receive it. If it would end them, the signal is refused
        unless ``force`` is true. All programs receive KILL, STOP and CONT. If a process exits
        because of the signal, the exit counts as any other exit. No signal is sent if one of the
        processes is not running.
        """
        from symphony.cluster.process_requests import request_processes
        from symphony.support.signal_names import find_signal

        number = int(find_signal(signal))
        return request_processes(self, "signal", experiment, processes, signal=number, force=force)

    # --- deleting ---

    def delete(
        self,
        experiment: str,
        *,
        purge: bool = False,
        in_order: bool = True,
        at_once: bool = False,
    ) -> None:
        """Stop an experiment and remove all its objects.

        A backend that keeps the records of runs moves the record to the archive, unless ``purge``
        is set; see `symphony.archive`. If the experiment does not exist, nothing happens.

        The processes are stopped in the reverse of the start order. If ``in_order`` is false, all
        of them are asked to exit at the same time, and each has its grace period. With
        ``at_once``, all are killed without a grace period.
        """
        self.implementation.delete(experiment, in_order=in_order, at_once=at_once, purge=purge)

    def delete_batch(self, experiments: Iterable[str]) -> None:
        """Delete several experiments."""
        # Check all names before the first deletion.
        for name in [check_is_text(name, "experiment") for name in experiments]:
            self.delete(name)

    # --- runs ---

    def list_runs(self) -> list[Run]:
        """Return the recorded runs of all experiments on this machine, the newest first.

        See `symphony.archive`.
        """
        return self.implementation.recorded_runs.list_all()

    def _retention(self) -> Retention:
        """Return which archived runs to keep, according to the configuration."""
        from symphony.archive.archive import configured_retention

        return configured_retention(self.configuration.get("runs", {}))

    def at_run(self, run: Run) -> Cluster:
        """Return a cluster whose methods for reading an experiment read the record of ``run``.

        For example, ``cluster.at_run(run).get_log(run.experiment, "learner")`` returns a log of an
        experiment that has been deleted. Raises `Unsupported` if the backend keeps no records.
        """
        import copy

        reader = copy.copy(self)
        vars(reader)["implementation"] = self.implementation.recorded_runs.at_run(run)
        return reader

    def usage_of_run(self, run: Run) -> RecordedUsage:
        """Return the recorded resource use of a run: the samples, and the statistics of all values.

        It is empty if no samples were recorded; see `Experiment.record_usage`.
        """
        from symphony.archive.archived_usage import read_usage

        if not run.is_archived:
            with contextlib.suppress(Unsupported):
                return self.at_run(run)._recorded_usage(run.experiment)
        return read_usage(run.path)

    def _recorded_usage(self, experiment: str) -> RecordedUsage:
        from symphony.archive.archived_usage import USAGE_FILE, parse_usage

        files = self.implementation.record(experiment, USAGE_FILE)
        return parse_usage(files.get(USAGE_FILE, b""))

    # --- observing ---

    def resume_experiments(self, *, dry_run: bool = False) -> dict[str, str]:
        """Start the experiments again that a reboot of this machine has interrupted.

        These are the experiments with the option ``resume``. All of their processes start again, in
        start order. With ``dry_run``, nothing is started. The result maps the names of the
        experiments to why they could not be started, or ``""``. Experiments that do not run on this
        machine are not interrupted.
        """
        return dict(self.implementation.recorded_runs.resume(dry_run=dry_run))

    def list_experiments(self) -> list[str]:
        """Return the sorted names of the experiments that symphony launched on this cluster."""
        return sorted(self.implementation.names())

    @property
    def location(self) -> str:
        """The place of the experiments, such as a directory, for messages, or ``""``."""
        return self.implementation.location

    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """Return the current status of an experiment and of its processes."""
        return self.implementation.observe(experiment)

    def describe_experiments(
        self, experiments: Sequence[str], *, on_error: Callable[[SymphonyError], None]
    ) -> list[ExperimentStatus]:
        """Return the status of each experiment in ``experiments`` that still exists.

        ``on_error`` is called with the error for each experiment that cannot be described.
        """
        found = self._read_together() if len(experiments) > 1 else {}
        statuses = []
        for name in experiments:
            if name in found:
                statuses.append(found[name])
                continue
            try:
                statuses.append(self.describe_experiment(name))
            except NotFound:
                # The experiment was deleted after the names were listed.
                continue
            except SymphonyError as exc:
                on_error(exc)
        return statuses

    def _read_together(self) -> Mapping[str, ExperimentStatus]:
        """Return the statuses of the experiments that the backend reads together."""
        try:
            with self.implementation.watch(None, follow=False) as watch:
                return {status.name: status for status in watch.read().statuses}
        except Unsupported:
            return {}

    @contextlib.contextmanager
    def watch_experiment(self, experiment: str) -> Iterator[Callable[[], WatchedStatuses]]:
        """Return a context with a function that returns the current status of an experiment.

        The function raises the errors of `describe_experiment`. Statuses during an outage can be
        out of date, and come with a message.
        """
        from symphony.cluster.watch_experiment import watch_experiment

        with watch_experiment(self.implementation, experiment) as read:
            yield read

    @contextlib.contextmanager
    def watch_experiments(
        self, *, on_error: Callable[[SymphonyError], None]
    ) -> Iterator[Callable[[], WatchedStatuses]]:
        """Return a context with a function that returns the current statuses of all experiments.

        If the backend cannot watch all experiments, each call of the function calls
        `list_experiments` and `describe_experiments`.
        """

        def read_one_by_one() -> WatchedStatuses:
            names = self.list_experiments()
            return WatchedStatuses(self.describe_experiments(names, on_error=on_error))

        with contextlib.ExitStack() as opened:
            try:
                read = opened.enter_context(self.implementation.watch(None)).read
            except Unsupported:
                read = read_one_by_one
            yield read

    def describe_process_group(
        self, experiment: str, process_group: str
    ) -> tuple[ProcessStatus, ...]:
        """Return the current status of each member of a group.

        Raises `NotFound` if the experiment does not exist or does not contain the group.
        """
        members = tuple(p for p in self.describe_experiment(experiment) if p.group == process_group)
        if not members:
            raise NotFound(f"experiment {experiment!r} has no group {shown(process_group)}")
        return members

    def describe_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessStatus:
        """Return the current status of a process. Raises `NotFound` if the experiment or the
        process does not exist, or if the process is not in ``process_group``.
        """
        return find_status(self.describe_experiment(experiment), process, process_group)

    def explain_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessDetails:
        """Return the status of a process together with its settings, addresses and events, as far
        as the backend knows them.
        """
        found = self.describe_process(experiment, process, process_group)
        return self.implementation.details(experiment, found)

    def describe_topology(self, experiment: str) -> Topology:
        """Return the processes, groups and services of a launched experiment, including the
        services' ports and connections.
        """
        return self.implementation.topology(experiment)

    def iter_usage(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        interval: float | str = 1.0,
    ) -> Iterator[ExperimentUsage]:
        """Iterate over samples of the resources that the running processes of an experiment use.

        ``processes`` selects processes as in `stop_processes`. The first sample comes as soon as
        the CPU use has been measured, and then one sample every ``interval``, or less often if the
        backend measures less often. Only the iteration causes work. It continues until the
        experiment has finished or was deleted. Raises `Unsupported` with the reason if the backend
        cannot report anything.
        """
        from symphony.model.settings.durations import parse_positive_duration

        seconds = parse_positive_duration(interval, "interval")
        status = self.describe_experiment(experiment)
        names: Collection[str] | None = None
        if processes is not None:
            describe = functools.partial(self.describe_experiment, experiment)
            names = SelectedNames(status, processes, describe)
        return self.implementation.usage(experiment, names, seconds)

    def recorded_usage(self, experiment: str) -> list[ExperimentUsage]:
        """Return the samples in the record of an experiment's run, the earliest first.

        The list is empty if no samples were recorded; see `Experiment.record_usage`. Older samples
        are further apart than newer ones.
        """
        return self._recorded_usage(experiment).samples

    def wait(
        self,
        experiment: str,
        *,
        timeout: float | str | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
        processes: Sequence[str] | None = None,
    ) -> ExperimentStatus:
        """Block until every process has finished, and return the status of the experiment.

        ``processes`` selects the processes to wait for, as in `stop_processes`. None selects all.
        ``timeout`` is in seconds or has a unit, such as ``"5m"``; when it expires, `TimeoutError`
        is raised, which says what each process waits for. ``on_change`` is called with each status
        that differs from the previous one. With ``until="started"`` or ``until="ready"``, block
        only until every process has started or is ready, respectively. This method does not wait
        for processes that have finished or, with ``until="ready"``, for processes that did not
        become ready in time. The returned status contains the state of each process.
        """
        from symphony.cluster.backend import WaitGoal
        from symphony.model.settings.durations import parse_timeout

        goal = WaitGoal(until, processes, parse_timeout(timeout))
        try:
            return self.implementation.wait(experiment, goal, on_change)
        except TimeoutError as exc:
            # The message can contain what a readiness test has printed.
            message = self.hidden_values(experiment).in_text(str(exc))
            raise TimeoutError(message) from None

    # --- using ---

    @overload
    def get_log(
        self, experiment: str, process: str, process_group: str | None = None, *,
        follow: Literal[False] = False, since: float | str | None = None, tail: int | None = None,
        previous: bool = False, exact: bool = False,
    ) -> str: ...  # fmt: skip

    @overload
    def get_log(
        self, experiment: str, process: str, process_group: str | None = None, *,
        follow: Literal[True], since: float | str | None = None, tail: int | None = None,
        previous: bool = False, exact: bool = False,
    ) -> Iterator[str]: ...  # fmt: skip

    def get_log(
        self,
        experiment: str,
        process: str,
        process_group: str | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
        previous: bool = False,
        exact: bool = False,
    ) -> str | Iterator[str]:
        """Return the log of a process as a string. With ``follow``, return an iterator over its
        lines.

        ``since`` and ``tail`` have the same meaning as in `iter_logs`. With ``previous``, return
        only the output before the last restart; `Unsupported` is raised if the backend does not
        keep this output separately, and `NotFound` if the process has not been restarted. Raises
        `SpecError` if both ``previous`` and ``follow`` are set.

        Bytes that are not valid UTF-8 are U+FFFD or, with ``exact``, surrogate escapes, so that
        ``text.encode("utf-8", "surrogateescape")`` returns the bytes that the process has written.
        """
        from symphony.log_blocks import to_lines
        from symphony.log_text import printable

        name = self._log_name(experiment, process, process_group)
        if previous and follow:
            raise SpecError(
                "a log from before a restart cannot be followed: set previous or follow, not both"
            )
        if not follow:
            pieces = self._iter_log_text(
                experiment, name, since=since, tail=tail, previous=previous
            )
            text = "".join(pieces)
            return text if exact else printable(text)
        blocks = self.iter_output(
            experiment, [name], follow=True, since=since, tail=tail, exact=exact
        )
        return (f"{line.text}\n" for line in to_lines(blocks))

    def iter_log_text(
        self,
        experiment: str,
        process: str,
        process_group: str | None = None,
        *,
        since: float | str | None = None,
        tail: int | None = None,
        exact: bool = False,
    ) -> Iterator[str]:
        """Yield the log of a process in pieces, which together are the result of `get_log`.

        The pieces have a limited size on backends that can read a log in parts. ``since`` and
        ``tail`` have the same meaning as in `iter_logs`, and ``exact`` as in `get_log`.
        """
        from symphony.log_text import printable

        name = self._log_name(experiment, process, process_group)
        pieces = self._iter_log_text(experiment, name, since=since, tail=tail)
        return pieces if exact else map(printable, pieces)

    def _iter_log_text(
        self,
        experiment: str,
        process: str,
        *,
        since: float | str | None,
        tail: int | None,
        previous: bool = False,
    ) -> Iterator[str]:
        """Yield the log of a process in pieces, with bytes decoded as in `symphony.log_text`."""
        from symphony.cluster.backend import Selection
        from symphony.log_blocks import LogBlock

        backend = self.implementation
        if previous and not backend.keeps_previous_output:
            raise Unsupported(
                f"the {backend.name} backend keeps one log of a process, which continues after a "
                f"restart: {process!r} has no previous one"
            )
        selection = Selection(
            processes=[process],
            find_names=lambda: [process],
            since=_start_time(since),
            given_since=since,
            tail=tail,
            as_written=True,
            previous=previous,
        )
        items = backend.output(experiment, selection)
        return (item.text for item in items if isinstance(item, LogBlock))

    def hidden_values(self, experiment: str, changed: Experiment | None = None) -> HiddenValues:
        """Return the values that views hide in the output of an experiment.

        These are the contents of its secrets, and the values of variables and parameters whose
        names suggest a secret. A value that this user cannot read is not included. With
        ``changed``, a new description of the experiment, the values in this description are
        included too.
        """
        from symphony.archive.run_record import SECRET_FILES
        from symphony.support.hidden_values import HiddenValues, lines_of_secret, secret_values

        record: Mapping[str, Any] = {}
        contents: list[bytes] = []
        with contextlib.suppress(SymphonyError):
            record = self._launch_record(experiment)
        if record.get("definition", {}).get("secrets"):
            with contextlib.suppress(SymphonyError, OSError):
                contents = [*self.implementation.record(experiment, SECRET_FILES).values()]
        lines = [line for content in contents for line in lines_of_secret(content)]
        values = [*secret_values(record), *lines]
        if changed is not None:
            values += secret_values([changed.dump_dict(), changed.given.to_dict()])
            if changed.source is not None:
                values += secret_values(changed.source.to_dict())
        return HiddenValues(values)

    def removed_processes(self, experiment: str) -> list[str]:
        """Return the names of the processes that a change has removed and whose logs still exist.

        These names can be given to `get_log`, `iter_log_text`, `iter_logs`, `iter_output`,
        `save_logs` and `iter_events`. Only processes that `up` or `scale` has removed from a
        running experiment are included, until a process with the same name is added.
        """
        present = {process.name for process in self.describe_experiment(experiment)}
        return [name for name in self.implementation.logs(experiment) if name not in present]

    def removed_output(self, experiment: str, processes: Sequence[str]) -> dict[str, int]:
        """Return the numbers of bytes that were removed at the beginnings of logs.

        ``processes`` are names, and the result contains those whose log has exceeded its
        ``log_limit``. A backend that does not limit logs itself returns an empty mapping.
        """
        logs = self.implementation.logs(experiment, processes)
        return {name: size for name, size in logs.items() if size}

    def _log_name(self, experiment: str, process: str, process_group: str | None) -> str:
        """Return the name of a process whose log can be read."""
        try:
            return self.describe_process(experiment, process, process_group).name
        except NotFound:
            if process_group is None and process in self.removed_processes(experiment):
                return process
            raise

    def save_logs(
        self,
        experiment: str,
        folder: str | os.PathLike[str],
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> dict[str, Path]:
        """Write the log of each process to a file in the directory ``folder``, and return a mapping
        from process names to paths.

        ``processes`` defaults to all processes. The files are named ``<process>.log``. An existing
        file is replaced once the new file is complete. With ``follow``, however, existing files are
        emptied first, and output is written until the processes have exited. Use this method to
        keep logs longer than the backend does.
        """
        from symphony.cluster.save_logs import save_following, save_once

        status = self.describe_experiment(experiment)
        names = find_names(status, processes, functools.partial(self.removed_processes, experiment))
        if follow:
            blocks = self.iter_output(
                experiment, names, follow=True, since=since, tail=tail, exact=True
            )
            return save_following(folder, names, blocks)

        def read(name: str) -> Iterator[str]:
            return self._iter_log_text(experiment, name, since=since, tail=tail)

        return save_once(folder, names, read)

    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Iterate over the lines of several processes' logs in the order in which they were
        written.

        ``processes`` selects processes as in `stop_processes`, and defaults to all processes. With
        ``follow``, continue until the processes have exited, and include processes that a change
        adds to the selection. ``since`` is a number of seconds or a duration before now (``"90s"``,
        ``"5m"``, ``"2h"``), or an ISO 8601 time. Earlier lines are omitted. ``tail`` limits the
        output to the last ``tail`` lines of each process.
        """
        from symphony.log_blocks import to_lines

        return to_lines(
            self.iter_output(experiment, processes, follow=follow, since=since, tail=tail)
        )

    @overload
    def iter_output(
        self, experiment: str, processes: Sequence[str] | None = None, *,
        follow: bool = False, since: float | str | None = None, tail: int | None = None,
        events: Literal[False] = False, exact: bool = False,
    ) -> Iterator[LogBlock]: ...  # fmt: skip

    @overload
    def iter_output(
        self, experiment: str, processes: Sequence[str] | None = None, *,
        follow: bool = False, since: float | str | None = None, tail: int | None = None,
        events: bool, exact: bool = False,
    ) -> Iterator[LogBlock | ExperimentEvent]: ...  # fmt: skip

    def iter_output(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
        events: bool = False,
        exact: bool = False,
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Iterate over the lines of several processes' logs in blocks, which is faster than
        `iter_logs` if the logs are large.

        The other arguments are those of `iter_logs`. With ``follow``, the parts of a progress bar
        are yielded as they are written, on backends that receive incomplete lines. With ``events``,
        the events of the processes are yielded between the lines, and all lines of a process come
        before the event of its exit. If ``tail`` is given, only events that happen from now on are
        included. ``exact`` has the same meaning as in `get_log`.
        """
        from symphony.log_text import printable_items

        items = self._iter_output(
            experiment, processes, follow=follow, since=since, tail=tail, events=events
        )
        return items if exact else printable_items(items)

    def _iter_output(
        self,
        experiment: str,
        processes: Sequence[str] | None,
        *,
        follow: bool,
        since: float | str | None,
        tail: int | None,
        events: bool,
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield blocks and events. The arguments are those of `iter_output`.

        The text of the blocks is that of `symphony.log_text`.
        """
        from symphony.cluster.backend import Selection

        backend = self.implementation
        removed = functools.partial(self.removed_processes, experiment)

        def find_selected() -> list[str]:
            return find_names(self.describe_experiment(experiment), processes, removed)

        selection = Selection(
            processes=processes,
            find_names=find_selected,
            since=_start_time(since),
            given_since=since,
            tail=tail,
            follow=follow,
            events=events,
        )
        output = backend.output(experiment, selection)
        includes_events = backend.output_includes_events or (
            follow and backend.followed_output_includes_events
        )
        if not events or includes_events:
            return output
        return self._with_later_events(output, experiment, processes, since=since, tail=tail)

    def iter_events(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
    ) -> Iterator[ExperimentEvent]:
        """Iterate over the events of an experiment in chronological order.

        ``processes`` selects processes as in `stop_processes`. The default is all processes and the
        experiment itself. With ``follow``, continue until the experiment has finished or was
        deleted, or until the selected processes have exited, and include processes that a change
        adds to the selection. ``since`` has the same meaning as in `iter_logs`. Raises `NotFound`
        if a name selects no process.

        A backend that has no record of the events derives them from the status. It then reports
        only what can still be observed, such as the last exit of a process.
        """
        status = self.describe_experiment(experiment)
        names: Collection[str] | None = None
        if processes is not None:
            removed = functools.partial(self.removed_processes, experiment)
            describe = functools.partial(self.describe_experiment, experiment)
            names = SelectedNames(status, processes, describe, removed) if processes else []
        start = _start_time(since)
        return self._iter_events(experiment, names, follow=follow, since=start)

    def _with_later_events(
        self,
        output: Iterator[LogBlock | ExperimentEvent],
        experiment: str,
        processes: Sequence[str] | None,
        *,
        since: float | str | None,
        tail: int | None,
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield ``output``, and then the events that have happened since a time.

        The other arguments are those of `iter_output`.
        """
        from symphony.cluster.since import parse_since

        now = time.time()
        earliest = 0.0 if tail is None else now
        if since is not None:
            earliest = max(earliest, parse_since(since, now))
        yield from output
        with contextlib.suppress(NotFound):
            for event in self.iter_events(experiment, processes or None):
                if event.at >= earliest:
                    yield event

    def _iter_events(
        self,
        experiment: str,
        names: Collection[str] | None,
        *,
        follow: bool,
        since: float | None,
    ) -> Iterator[ExperimentEvent]:
        """Yield events. The arguments are those of `iter_events`, but ``names`` contains the names
        of processes, to which a change can add some, and ``since`` is in seconds since the epoch.
        """
        from symphony.cluster.status_events import events_of_statuses
        from symphony.events import select_events

        events = self.implementation.events(experiment, names, follow=follow)
        if events is None:
            events = events_of_statuses(self, experiment, names, follow=follow)
        return select_events(events, names, since)

    def exec_command(
        self,
        experiment: str,
        process: str,
        command: Strings,
        process_group: str | None = None,
        *,
        interactive: bool = False,
    ) -> ExecResult:
        """Run a command in the environment and the working directory of a process, and return the
        command's result.

        On Kubernetes, the process must be running. On the other backends, it can have exited.
        With ``interactive``, the command is connected to the terminal, and its output is not
        captured.
        """
        from symphony.model.settings.validators import strings

        named = self._named_process(experiment, process, process_group)
        argv = strings(command, "command")
        return self.implementation.access.exec(experiment, named, argv, interactive=interactive)

    def login(self, experiment: str, process: str, process_group: str | None = None) -> None:
        """Attach the terminal to a process."""
        named = self._named_process(experiment, process, process_group)
        self.implementation.access.attach(experiment, named, dry_run=False)

    def check_login(self, experiment: str, process: str, process_group: str | None = None) -> None:
        """Raise the error of `login` if no terminal can be attached to a process.

        This method attaches no terminal, so this program needs none.
        """
        named = self._named_process(experiment, process, process_group)
        self.implementation.access.attach(experiment, named, dry_run=True)

    def _named_process(self, experiment: str, process: str, group: str | None) -> NamedProcess:
        from symphony.cluster.backend import NamedProcess

        observe = functools.partial(self.describe_experiment, experiment)
        return NamedProcess(process, group, observe)

    def transfer_file(
        self,
        experiment: str,
        source: str,
        target: str,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy a file or a directory to or from a process, as ``cp -r`` does.

        One of ``source`` and ``target`` is a path in a process, written as ``process:path`` or
        ``group/process:path``. A relative path in a process is relative to the process's working
        directory. ``progress`` is called with the number of bytes copied so far and the total
        number of bytes, which is None if it is unknown. A backend whose processes run on this
        machine does not call ``progress``. With ``dry_run``, check both paths but copy nothing.
        """
        from symphony.cluster.backend import Place
        from symphony.cluster.remote_path import parse_transfer

        places: list[Place] = []
        for text, remote in zip((source, target), parse_transfer(source, target), strict=True):
            if remote is None:
                places.append(Place(None, text, text))
            else:
                process = self._named_process(experiment, remote.process, remote.group)
                places.append(Place(process, remote.path, text))
        self.implementation.access.copy(experiment, *places, dry_run=dry_run, progress=progress)

    def external_url(self, experiment: str, service: str) -> str:
        """Return the external address of an exposed service as ``host:port``.

        Raises `NotFound` if the experiment does not expose the service.
        """
        from symphony.cluster.backend.external_address import find_external_address

        return find_external_address(self.implementation, experiment, service)

    def exposed_services(self, experiment: str) -> dict[str, str | None]:
        """Return a mapping from the exposed services of an experiment to their external addresses.

        An address has the form ``host:port``. It is None if it is not known yet, or if it cannot be
        determined quickly; `visit` then finds an address. Raises `Unsupported` if the backend
        cannot expose services.
        """
        return dict(self.implementation.external_addresses(experiment))

    def port_forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None = None,
        *,
        local_port: int | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> Tunnel:
        """Forward a local port to a process or a service until the returned tunnel is closed.

        ``port`` is required only for a process, because a service defines its own port.
        ``local_port`` defaults to any free port. If a connection fails, ``on_error`` is called with
        an error message, in another thread.
        """
        from symphony.cluster.backend import ForwardRequest
        from symphony.cluster.backend.external_address import errors_about_replicas

        request = ForwardRequest(process_or_service, port, local_port, on_error=on_error)
        with errors_about_replicas(self.implementation, experiment, process_or_service):
            return self.implementation.access.forward(experiment, request)

    def visit(
        self, experiment: str, service: str, *, on_error: Callable[[str], None] | None = None
    ) -> Tunnel:
        """Return a tunnel to an exposed service.

        If the service has an external address, the tunnel uses this address. Otherwise, a local
        port is forwarded to the service.
        """
        from symphony.cluster.backend import ForwardRequest

        request = ForwardRequest(service, external=True, on_error=on_error)
        return self.implementation.access.forward(experiment, request)

    # --- names ---

    def find_process(self, experiment: str, process: str) -> ProcessStatus:
        """Return the status of a process. ``process`` is its name, or ``group/process``."""
        return find_by_path(self.describe_experiment(experiment), process)

    def fuzzy_match_experiment(self, name: str) -> list[str]:
        """Return the names of the experiments that ``name`` can refer to.

        The result contains only the best matches: names equal to ``name``, else names that begin
        with it, else names that end with it, else names that contain it.
        """
        return fuzzy_match(name, self.list_experiments())

    def fuzzy_match_process(self, experiment: str, name: str) -> list[str]:
        """Return the names of the experiment's processes that ``name`` can refer to."""
        return fuzzy_match(name, [process.name for process in self.describe_experiment(experiment)])


@contextlib.contextmanager
def _errors_in_experiment_first(experiment: Experiment) -> Iterator[None]:
    """If the block raises `AlreadyExists` and the experiment contains an error, raise this error
    instead.

    The user must correct the error in any case, and can be tempted to delete the running experiment
    first.
    """
    try:
        yield
    except AlreadyExists:
        from symphony.plan.resolve import check_experiment

        for finding in check_experiment(experiment):
            raise finding.to_error() from None
        raise


def _ignore(_reason: str) -> None:
    """Do nothing with the reason why a launch waits."""


def _start_time(since: float | str | None) -> float | None:
    """Return the time since which logs or events are read, in seconds since the epoch."""
    if since is None:
        return None
    from symphony.cluster.since import parse_since

    return parse_since(since, time.time())


def _flag(value: object, subject: str) -> bool:
    from symphony.model.settings.validators import flag

    return flag(value, subject)


def _is_experiment(value: object) -> bool:
    from symphony.model import Experiment

    return isinstance(value, Experiment)


def _are_counts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(
        isinstance(name, str) and isinstance(count, (int, str)) and not isinstance(count, bool)
        for name, count in value.items()
    )


def _is_run(value: object) -> bool:
    from symphony.archive.archive import Run

    return isinstance(value, Run)


_FUNCTION = Check(lambda value: value is None or callable(value), "a function")
# The checks for the annotations of the methods of all clusters.
_CHECKS = {
    **CHECKS,
    "Experiment": Check(
        _is_experiment,
        "an Experiment, such as cluster.new_experiment(name) or Experiment.load_file(path)",
    ),
    "Mapping[str, int | str]": Check(
        _are_counts, "a mapping of names to numbers of replicas, such as {'agent': 16}"
    ),
    "Manifest": Check(lambda value: isinstance(value, Manifest), "a Manifest"),
    "Iterable[Experiment]": CHECKS["Iterable[str]"]._replace(expected="a list of experiments"),
    "OnChange": _FUNCTION,
    "Progress": _FUNCTION,
    "ExperimentStatus": Check(
        lambda value: isinstance(value, ExperimentStatus),
        "an ExperimentStatus, such as cluster.describe_experiment(name)",
    ),
    "Run": Check(_is_run, "a Run, such as cluster.list_runs()[0]"),
    "Until": CHECKS["str"],
    "WaitFor": CHECKS["str"],
}
check_methods(Cluster, _CHECKS)


__all__ = ["Cluster", "ExecResult", "Manifest", "Tunnel", "WatchedStatuses"]
