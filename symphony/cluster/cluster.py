"""The abstract cluster: one set of verbs for every backend."""

from __future__ import annotations

import abc
import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from symphony.cluster.matching import Until, find_status, fuzzy_match
from symphony.errors import NotFound, SpecError, Unsupported
from symphony.names import did_you_mean
from symphony.status import ExperimentStatus, LogLine, ProcessStatus

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.model import Experiment
    from symphony.model.validators import Strings
    from symphony.plan.resolve import Defaults, Ignored
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails


# Called with each status that differs from the one before.
OnChange = Callable[[ExperimentStatus], None] | None

# Called with the number of bytes copied so far and the total, or None if the total is unknown.
Progress = Callable[[int, int | None], None]


class Manifest(abc.ABC):
    """What a backend would make of a plan. Its text is the dry run, and the first half of the real launch.

    The text is whole, with the newline at its end: without that one, YAML may mean something else.
    """

    experiment: str
    ignored: tuple[Ignored, ...]

    @abc.abstractmethod
    def __str__(self) -> str: ...

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON knows it."""

    def write(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> None:
        """Write the manifest with the values of secrets to a file that only its owner can read.

        With ``dry_run`` nothing is written, and what would be refused is.
        """
        raise Unsupported(
            f"the manifest of {self.experiment!r} has no values of secrets in it on this backend"
        )


class Cluster(abc.ABC):
    """Launches experiments and tells how they are. One subclass per backend; see docs/writing-a-backend.md.

    ``preamble_cmds`` and ``start_dir`` hold for every experiment launched here, before its own.
    Every method that takes the name of an experiment raises `NotFound` for one that is not there.
    """

    backend: ClassVar[str]
    # Whether commands run on this machine, and so get Ctrl-C from its terminal as the command line does.
    commands_run_here: ClassVar[bool] = False
    # Whether a plain dry run looks at what is live; else only ``"server"`` does, and the plain one asks nobody.
    dry_run_checks_name: ClassVar[bool] = True
    # Whether every process must have a container image.
    requires_image: ClassVar[bool] = False
    _resources: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, *, preamble_cmds: Strings | None = None, start_dir: str | None = None
    ) -> None:
        self._preamble_cmds = preamble_cmds
        self._start_dir = start_dir
        if preamble_cmds is not None or start_dir is not None:
            _ = self.defaults  # what is wrong must show here, not at the first launch

    @functools.cached_property
    def defaults(self) -> Defaults:
        """What holds for every experiment launched here, before its own settings."""
        from symphony.model.validators import lines, path
        from symphony.plan.resolve import Defaults

        return Defaults(
            preamble_cmds=tuple(lines(self._preamble_cmds, "preamble_cmds"))
            if self._preamble_cmds
            else (),
            start_dir=None if self._start_dir is None else path(self._start_dir, "start_dir"),
            resource_request=dict(self._resources),
        )

    @staticmethod
    def new(name: str | None = None, **options: Any) -> Cluster:
        """The cluster of a backend, by name or alias: ``local``, ``tmux``, ``kube`` or a third party's.

        ``options`` are those of the backend's class. Without a name it is the backend of `SymphonyConfig`, and what
        is configured holds where an option is not given; a backend's class knows nothing of the configuration.
        Imports that backend alone. Raises `PluginError`.
        """
        from symphony.cluster.plugins import open_backend
        from symphony.config import SymphonyConfig

        config = SymphonyConfig()
        wanted = config.backend if name is None else name
        if config.is_empty():
            return open_backend(wanted).with_options(wanted, options)
        from symphony.config.clusters import configured

        return configured(config, wanted, options)

    @classmethod
    def with_options(cls, name: str, options: Mapping[str, Any]) -> Cluster:
        """A cluster with these keywords; one that it does not know is a `SpecError` with the near miss.

        The error's ``path`` is that keyword.
        """
        try:
            return cls(**options)
        except TypeError as exc:
            found = re.search(r"unexpected keyword argument '(\w+)'", str(exc))
            unknown = found.group(1) if found else ""
            if unknown not in options:
                raise
            hint = did_you_mean(unknown, cls.option_names())
            raise SpecError(
                f"backend {name!r} knows no option {unknown!r}{hint}", path=(unknown,)
            ) from exc

    def set_default_resources(self, resources: Mapping[str, str]) -> None:
        """What processes request that say nothing of it: ``{"cpu": "2", "memory": "4Gi"}``."""
        self._resources = resources
        vars(self).pop("defaults", None)

    @classmethod
    def option_names(cls) -> list[str]:
        """The keywords that this backend takes."""
        import inspect

        found: dict[str, None] = {}
        for base in cls.__mro__:
            if "__init__" in vars(base) and base is not object:
                found.update(dict.fromkeys(list(inspect.signature(base.__init__).parameters)[1:]))  # type: ignore[misc]
        return [name for name in found if name not in {"options", "kwargs", "args"}]

    # --- describing ---

    def new_experiment(
        self,
        name: str,
        *,
        secrets: Any = None,
        port_range: Any = None,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> Experiment:
        """An empty experiment; nothing is launched. The keywords are those of `Experiment`.

        Where `SymphonyConfig` has a user name, the experiment's begins with it: ``sarah-rl``.
        """
        from symphony.config import SymphonyConfig
        from symphony.model import Experiment

        return Experiment(
            SymphonyConfig().experiment_name(name),
            secrets=secrets,
            port_range=port_range,
            preamble_cmds=preamble_cmds,
            start_dir=start_dir,
        )

    @abc.abstractmethod
    def manifest(self, experiment: Experiment) -> Manifest:
        """What a launch would do, without doing it. Raises `SpecError`."""

    # --- launching ---

    def launch(
        self,
        experiment: Experiment,
        *,
        force: bool = False,
        dry_run: bool | Literal["server"] = False,
        on_change: OnChange = None,
    ) -> Manifest:
        """Start an experiment and return once all is created, with what was made of it.

        A live experiment of that name is refused (`AlreadyExists`) and left alone, unless ``force`` replaces
        it; one that has ended gives way. A launch that fails takes back what it had started (`LaunchFailed`).
        With an experiment folder (`SymphonyConfig`) it is saved there, and a name that is saved needs ``force`` too.
        ``dry_run`` writes the manifest to standard output and starts nothing; it refuses such a name alike, see
        `dry_run`. ``"server"`` has the backend's server check it first. A backend on which a launch takes time calls
        ``on_change`` with the status as it changes meanwhile.
        """
        if dry_run not in (True, False, "server"):
            raise SpecError(f"dry_run is True, False or 'server', not {dry_run!r}")
        _check_experiment(experiment)
        if not dry_run:
            return self._launch_and_save(experiment, force=force, on_change=on_change)
        manifest = self.dry_run(experiment, force=force, server=dry_run == "server")
        sys.stdout.write(str(manifest))
        return manifest

    def dry_run(
        self, experiment: Experiment, *, force: bool = False, server: bool = False
    ) -> Manifest:
        """What a launch would do, without doing it; a name that it would refuse is refused (`AlreadyExists`).

        ``server`` has the backend's server check it. On a backend whose dry run asks nobody, as on Kubernetes, only
        that looks whether the name is live.
        """
        if not force:
            self._refuse_taken(experiment.name, look=server or self.dry_run_checks_name)
        manifest = self.manifest(experiment)
        if server:
            self.check(manifest)
        return manifest

    def _refuse_taken(self, name: str, *, look: bool) -> None:
        """Raise `AlreadyExists` for a name that is saved or, where ``look`` says to look, live."""
        from symphony.cluster.matching import experiment_exists
        from symphony.config import SymphonyConfig

        folder = SymphonyConfig().experiment_folder
        if folder is not None:
            from symphony.config.launches import refuse_saved

            refuse_saved(name, folder)
        with contextlib.suppress(NotFound):
            if look and not self.describe_experiment(name).ended:
                raise experiment_exists(name)

    def _launch_and_save(
        self, experiment: Experiment, *, force: bool, on_change: OnChange
    ) -> Manifest:
        """Launch, and save it where an experiment folder is configured. A launch that cannot be saved is taken back."""
        from symphony.config import SymphonyConfig

        folder = SymphonyConfig().experiment_folder
        if folder is None:
            return self._launch(experiment, force=force, on_change=on_change)
        from symphony.config.launches import saving

        with saving(experiment, self.backend, folder, force=force) as save:
            manifest = self._launch(experiment, force=force, on_change=on_change)
            try:
                save(manifest)
            except BaseException:
                self.delete(experiment.name)
                raise
        return manifest

    @abc.abstractmethod
    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> Manifest:
        """Start ``experiment``, all or nothing."""

    def check(self, manifest: Manifest) -> None:
        """Have the backend's server say whether it would take ``manifest``; it makes nothing."""
        raise Unsupported(
            f"the {self.backend} backend has no server that could check {manifest.experiment!r}"
        )

    def launch_batch(
        self, experiments: Iterable[Experiment], *, force: bool = False, dry_run: bool = False
    ) -> list[Manifest]:
        """Launch several experiments in turn; one that fails leaves those before it running."""
        return [self.launch(experiment, force=force, dry_run=dry_run) for experiment in experiments]

    def stop(self, experiment: str, *, at_once: bool = False) -> None:
        """Stop an experiment and keep its logs and status; ``at_once`` without a grace period."""
        raise Unsupported(
            f"the {self.backend} backend cannot stop an experiment and keep it; delete it"
        )

    @abc.abstractmethod
    def delete(self, experiment: str) -> None:
        """Stop an experiment and remove all of it. One that is not there is no error."""

    def delete_batch(self, experiments: Iterable[str]) -> None:
        """Delete several experiments."""
        for name in experiments:
            self.delete(name)

    # --- observing ---

    @abc.abstractmethod
    def list_experiments(self) -> list[str]:
        """The names of the experiments that symphony made here, in the order of their names."""

    @abc.abstractmethod
    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """An experiment and its processes as they are now."""

    def describe_process_group(
        self, experiment: str, process_group: str
    ) -> tuple[ProcessStatus, ...]:
        """The members of a group as they are now."""
        members = tuple(p for p in self.describe_experiment(experiment) if p.group == process_group)
        if not members:
            raise NotFound(f"experiment {experiment!r} has no group {process_group!r}")
        return members

    def describe_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessStatus:
        """A process as it is now."""
        return find_status(self.describe_experiment(experiment), process, process_group)

    def explain_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessDetails:
        """All that matters about one process: its status, what it is, its addresses, and what happened to it."""
        from symphony.process_details import ProcessDetails

        return ProcessDetails(status=self.describe_process(experiment, process, process_group))

    def describe_topology(self, experiment: str) -> Topology:
        """Who binds, exposes and connects to what in an experiment as it was launched, with the ports in use."""
        raise Unsupported(
            f"the {self.backend} backend does not tell who is joined with whom in {experiment!r}"
        )

    @abc.abstractmethod
    def wait(
        self,
        experiment: str,
        *,
        timeout: float | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
    ) -> ExperimentStatus:
        """Return when every process has ended; ``timeout`` is in seconds and raises `TimeoutError`.

        ``on_change`` is called with each status that differs from the one before. ``until`` may ask for less: that
        every process has ``"started"``, or is ``"ready"``. Who has ended is not waited for either way, nor for being
        ready who is `not_ready_in_time`: the status says of each what became of it.
        """

    # --- using ---

    @overload
    def get_log(
        self, experiment: str, process: str, process_group: str | None = None, *,
        follow: Literal[False] = False, since: float | str | None = None, tail: int | None = None,
        previous: bool = False,
    ) -> str: ...  # fmt: skip

    @overload
    def get_log(
        self, experiment: str, process: str, process_group: str | None = None, *,
        follow: Literal[True], since: float | str | None = None, tail: int | None = None,
        previous: bool = False,
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
    ) -> str | Iterator[str]:
        """What a process has written so far, or with ``follow`` its lines as they come; see `iter_logs`.

        ``previous`` shows only what it wrote before its last restart, where the backend keeps that by itself.
        """
        name = self.describe_process(experiment, process, process_group).name
        if previous:
            if follow:
                raise SpecError(
                    "what was written before a restart cannot be followed: previous or follow, not both"
                )
            return self._read_previous_log(experiment, name, since=since, tail=tail)
        if not follow:
            return self._read_log(experiment, name, since=since, tail=tail)
        lines = self.iter_logs(experiment, [name], follow=True, since=since, tail=tail)
        return (f"{line.text}\n" for line in lines)

    @abc.abstractmethod
    def _read_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        """What a process has written so far, as it wrote it."""

    def _read_previous_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        """What a process wrote before its last restart."""
        raise Unsupported(
            f"the {self.backend} backend keeps one log of a process, over its restarts: {process!r} has no previous one"
        )

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
        """Write the logs of processes (all, unless named) to a folder, ``<process>.log`` each; the files by process.

        A file of that name is replaced once the new one is whole. ``follow`` goes on writing until the processes
        have ended. So logs outlive what the backend keeps of them.
        """
        from symphony.cluster.save_logs import follow_into, save_into

        names = [self.find_process(experiment, name).name for name in processes or ()]
        names = names or [process.name for process in self.describe_experiment(experiment)]
        if follow:
            lines = self.iter_logs(experiment, names, follow=True, since=since, tail=tail)
            return follow_into(folder, names, lines)
        return save_into(
            folder, names, lambda name: self._read_log(experiment, name, since=since, tail=tail)
        )

    @abc.abstractmethod
    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """What processes (all, unless named) wrote, line by line, in the order in which they wrote it.

        ``follow`` goes on until they have ended. ``since`` is a number of seconds or a duration back from now
        (``"90s"``, ``"5m"``, ``"2h"``) or an ISO 8601 time; ``tail`` the number of last lines of each process.
        """

    def exec_command(
        self,
        experiment: str,
        process: str,
        command: Strings,
        process_group: str | None = None,
        *,
        interactive: bool = False,
    ) -> ExecResult:
        """Run a command beside a running process, in its environment and folder.

        ``interactive`` leaves it the terminal and captures nothing.
        """
        raise Unsupported(f"the {self.backend} backend runs no commands beside a process")

    def login(self, experiment: str, process: str, process_group: str | None = None) -> None:
        """Attach the terminal to a process."""
        raise Unsupported(
            f"the {self.backend} backend attaches no terminal; exec runs a command beside {process!r}, logs follows it"
        )

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

        The path in the process is ``process:path`` or ``group/process:path``. If it is relative, it begins
        in the working directory of the process. ``progress`` is called with the number of bytes copied so
        far and the total, or None if the total is unknown; a backend that copies at once may never call it.
        ``dry_run`` checks both paths and copies nothing.
        """
        raise Unsupported(f"the {self.backend} backend copies no files")

    def external_url(self, experiment: str, service: str) -> str:
        """Where an exposed service is reached from outside the experiment: ``host:port``."""
        raise Unsupported(f"the {self.backend} backend exposes no services")

    def port_forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None = None,
        *,
        local_port: int | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> Tunnel:
        """Lead a port of this machine to one of a process or a service, for as long as the route is open.

        A service has a port of its own. ``local_port`` is any free one unless given. ``on_error`` is called, from
        another thread, with what went wrong with a connection.
        """
        raise Unsupported(f"the {self.backend} backend forwards no ports")

    def visit(
        self, experiment: str, service: str, *, on_error: Callable[[str], None] | None = None
    ) -> Tunnel:
        """A way from here to an exposed service: its own address, else a port that is forwarded to it."""
        return Tunnel(self.external_url(experiment, service))

    # --- names ---

    def find_process(self, experiment: str, process: str) -> ProcessStatus:
        """The process that ``process`` or ``group/process`` names, exactly."""
        group, _, name = process.rpartition("/")
        return find_status(self.describe_experiment(experiment), name, group or None)

    def fuzzy_match_experiment(self, name: str) -> list[str]:
        """The experiments that ``name`` may mean: those equal to it, else with it first, last or inside."""
        return fuzzy_match(name, self.list_experiments())

    def fuzzy_match_process(self, experiment: str, name: str) -> list[str]:
        """The processes of an experiment that ``name`` may mean."""
        return fuzzy_match(name, [process.name for process in self.describe_experiment(experiment)])


def _check_experiment(given: object) -> None:
    """Raise `SpecError` for what is no experiment, such as the name of one."""
    from symphony.model import Experiment

    if not isinstance(given, Experiment):
        what = repr(given) if isinstance(given, str) else type(given).__name__
        raise SpecError(
            f"launch takes an Experiment, not {what}; make one with cluster.new_experiment(name), or read a file with "
            "Experiment.load_file(path)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command ended: its exit code (128 + n for signal n), and its output where it was captured."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


class Tunnel:
    """A way to a service from this machine: ``address`` is ``host:port``. A context manager.

    One that is ``forwarded`` lasts until it is closed, any other by itself.
    """

    def __init__(self, address: str, *, close: Callable[[], None] | None = None) -> None:
        self.address = address
        self.forwarded = close is not None
        self._close = close

    def close(self) -> None:
        """End what is forwarded."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Cluster", "ExecResult", "Manifest", "Tunnel"]
