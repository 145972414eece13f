"""A scope: the experiments that a program may read and change.

Every method of a backend that concerns an experiment first asks the scope; see `limit_clusters`.
Names, runs and statuses outside the scope are left out of lists. A backend that overrides a method
of `symphony.Cluster` is not limited in this method.

A scope prevents mistakes. It does not confine the programs that an experiment runs, because they
have all rights of the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from symphony.archive.origin import find_origin
from symphony.cluster import factory
from symphony.cluster.matching import experiment_not_found
from symphony.cluster.results import WatchedStatuses
from symphony.errors import SymphonyError
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster.backend import Access, Backend, ChangeRequest, LaunchRequest, Watch
    from symphony.cluster.cluster import Cluster
    from symphony.model import Experiment
    from symphony.plan.changes import Changes

# The methods of a backend and of its object `access` that change an experiment.
CHANGING_METHODS = frozenset({"delete", "request", "exec", "attach", "copy"})


class OutOfScope(SymphonyError):
    """The experiment, or the change of it, is outside the scope of the program."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The experiments that a program may read and change.

    The name of an experiment matches one of the ``patterns``, unless there are none. With
    ``origin``, a directory, the experiment was launched from there; see `find_origin`. With
    ``read_only``, nothing may be changed.
    """

    patterns: Sequence[str] = ()
    origin: str | None = None
    read_only: bool = False

    def check_name(self, name: str) -> None:
        """Raise `OutOfScope` if no pattern matches the name of an experiment."""
        if self.patterns and not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            wanted = " or ".join(map(repr, self.patterns))
            raise OutOfScope(f"experiment {name!r} is out of scope: its name must match {wanted}")

    def check_directory(self, name: str, directory: Path | str | None) -> None:
        """Raise `OutOfScope` if an experiment from this directory has another origin, or if the
        directory is not known.
        """
        if self.origin is None:
            return
        if directory is None or str(find_origin(Path(directory))) != self.origin:
            place = "an unknown place" if directory is None else directory
            raise OutOfScope(
                f"experiment {name!r} is out of scope: it is from {place}, not from {self.origin}"
            )

    def check_change(self, action: str) -> None:
        """Raise `OutOfScope` if nothing may be changed. ``action`` is for the message."""
        if self.read_only:
            raise OutOfScope(f"cannot {action}: only reading is in scope")

    def check_run(self, run: Run) -> None:
        """Raise `OutOfScope` if the experiment of a run is out of scope."""
        self.check_name(run.experiment)
        summary = run.summary
        self.check_directory(run.experiment, summary.get("origin") or summary.get("base_directory"))

    def has(self, run: Run) -> bool:
        """Return whether the experiment of a run is in scope."""
        with contextlib.suppress(OutOfScope):
            self.check_run(run)
            return True
        return False


def limit_clusters(scope: Scope) -> None:
    """Limit all clusters that `Cluster.new` returns from now on to the experiments in scope."""

    def limited(cls: type[Cluster]) -> type[Cluster]:
        def implementation(cluster: Cluster) -> Backend[Any]:
            whole = getattr(super(limited_class, cluster), "implementation")  # noqa: B009
            return cast("Backend[Any]", ScopedBackend(whole, scope))

        # A copy of the cluster has the same class.
        limited_class = type(
            cls.__name__, (cls,), {"implementation": cached_property(implementation)}
        )
        return limited_class

    factory.limit_class = limited


class _Guard:
    """An object whose methods take the name of an experiment first, which must be in scope."""

    def __init__(self, guarded: Any, scope: Scope, check: Callable[[str], None]) -> None:
        self._guarded = guarded
        self._scope = scope
        self._check = check

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._guarded, name)
        return partial(self._call, name, value) if callable(value) else value

    def _call(
        self, name: str, method: Callable[..., Any], experiment: str, *args: Any, **options: Any
    ) -> Any:
        self._check(experiment)
        if name in CHANGING_METHODS:
            self._scope.check_change(f"{name} {experiment!r}")
        return method(experiment, *args, **options)


class ScopedBackend(_Guard):
    """A backend that has only the experiments in scope.

    Its methods are those of `symphony.cluster.backend.Backend`. Those that are not below take the
    name of an experiment as the first argument.
    """

    def __init__(self, backend: Backend[Any], scope: Scope) -> None:
        super().__init__(backend, scope, self._check_existing)
        self._backend = backend

    def _check_existing(self, experiment: str) -> None:
        self._scope.check_name(experiment)
        if self._scope.origin is None:
            return
        run = self._backend.recorded_runs.find(experiment)
        if run is not None:
            self._scope.check_run(run)
            return
        if experiment not in self._backend.names():
            raise experiment_not_found(experiment, self.names())
        self._scope.check_directory(experiment, None)

    def _has(self, experiment: str) -> bool:
        with contextlib.suppress(SymphonyError):
            self._check_existing(experiment)
            return True
        return False

    def names(self) -> Collection[str]:
        """Return the names of the experiments in scope."""
        return [name for name in self._backend.names() if self._has(name)]

    @contextlib.contextmanager
    def watch(self, experiment: str | None, *, follow: bool = True) -> Iterator[Watch]:
        """Observe an experiment, or all of those in scope."""
        if experiment is not None:
            self._check_existing(experiment)
        with self._backend.watch(experiment, follow=follow) as watch:
            yield watch._replace(read=partial(self._read, watch))

    def _read(self, watch: Watch) -> WatchedStatuses:
        watched = watch.read()
        return watched._replace(
            statuses=[status for status in watched.statuses if self._has(status.name)]
        )

    def launch(self, request: LaunchRequest) -> Any:
        """Launch an experiment whose name and directory are in scope.

        An existing experiment of this name must be in scope, because it can be replaced.
        """
        experiment = request.experiment
        self._check_description(experiment, dry_run=request.dry_run)
        if self._scope.origin is not None and experiment.name in self._backend.names():
            self._check_existing(experiment.name)
        return self._backend.launch(request)

    def change(self, request: ChangeRequest) -> Changes:
        """Change an experiment in scope."""
        self._check_description(request.experiment, dry_run=request.dry_run)
        self._check_existing(request.experiment.name)
        return self._backend.change(request)

    def _check_description(self, experiment: Experiment, *, dry_run: bool) -> None:
        name = experiment.name
        self._scope.check_name(name)
        file = experiment.file
        directory = experiment.base_dir or Path.cwd() if file is None else file.parent
        self._scope.check_directory(name, directory)
        if not dry_run:
            self._scope.check_change(f"launch or change {name!r}")

    def check(self, manifest: Any) -> str:
        """Have the platform check a manifest, which changes nothing."""
        return self._backend.check(manifest)

    @property
    def access(self) -> Access:
        """The object with which users reach the processes of experiments in scope."""
        guard = _Guard(self._backend.access, self._scope, self._check_existing)
        return cast("Access", guard)

    @property
    def recorded_runs(self) -> ScopedRuns:
        """The recorded runs in scope."""
        return ScopedRuns(self._backend, self._scope, self._check_existing)


class ScopedRuns(_Guard):
    """The recorded runs in scope; see `symphony.cluster.backend.RecordedRuns`."""

    def __init__(self, backend: Backend[Any], scope: Scope, check: Callable[[str], None]) -> None:
        super().__init__(backend.recorded_runs, scope, check)
        self.backend = backend

    def list_all(self) -> list[Run]:
        """Return the recorded runs in scope, the newest first."""
        return [run for run in self._guarded.list_all() if self._scope.has(run)]

    def active_paths(self, experiment: str) -> list[Path]:
        """Return where the record of an active run can be, without reading it."""
        found: list[Path] = self._guarded.active_paths(experiment)
        return found

    def at_run(self, run: Run) -> Any:
        """Return a backend that reads the record of a run in scope."""
        self._scope.check_run(run)
        return self._guarded.at_run(run)

    def resume(self, *, dry_run: bool) -> Any:
        """Refuse to start experiments again, because they can be out of scope."""
        del dry_run
        raise OutOfScope("cannot resume the experiments of this machine: they can be out of scope")
