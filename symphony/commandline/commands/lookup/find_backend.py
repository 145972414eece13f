"""Find the backend on which an experiment is, if the user names no backend.

A command first uses the backend that is configured. It also finds the experiments of every other
backend that can list them without delay, such as the experiments in tmux. Backends that are slow to
respond, such as a Kubernetes cluster, are included if the configuration contains one of the options
that select their experiments, such as a context. They are asked only if no other backend has the
experiment, and have a short time to respond.

The records of runs also show where an experiment was launched from this machine, for example in a
cluster that is not configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from symphony.commandline.exit_codes import UsageError
from symphony.errors import BackendError, NotFound, SymphonyError
from symphony.support.data_classes import dataclass, field
from symphony.support.names import did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import Cluster
    from symphony.config.configuration import ConfiguredValues
    from symphony.hookspecs import BackendInfo

Result = TypeVar("Result")

# How long a command waits for a backend that the user did not name.
RESPONSE_TIMEOUT_SECONDS = 3.0


def find_cluster(selected: Cluster, given: str, *, exact: bool) -> Cluster:
    """Return the cluster with the experiment that the user meant by ``given``.

    ``selected`` is the cluster of the configured backend. It is also the result if no backend has
    the experiment. Unless ``exact`` is set, ``given`` can be the beginning of a name. Raises
    `UsageError` if several backends have the experiment.
    """
    wanted = _possible_names(given, selected)
    others = quick_names(selected)
    elsewhere = _having(others, wanted)
    names: dict[str, list[str]] = {}
    # A slow backend is not asked if it is the only one that can have the experiment.
    if elsewhere or is_quick(selected.backend) or (not exact and _matches(others, wanted)):
        names[selected.backend] = _names_of_selected(selected, given, elsewhere)
    names.update(others)
    found = _having(names, wanted)
    if not found:
        run = _recorded_run(selected.backend, wanted)
        if run is not None:
            from symphony.cluster.run_results import cluster_of_record

            return cluster_of_record(run)
        names.update(_slow_names(selected))
        found = _having(names, wanted)
    if not found and not exact:
        found = _with_partial_name(names, given, wanted)
    if len(found) > 1:
        raise _ambiguous(given, found)
    return cluster_of(found[0], selected) if found else selected


def is_ambiguous(selected: Cluster, name: str) -> bool:
    """Return whether another backend that lists its experiments without delay has one called
    ``name``.
    """
    return bool(_having(quick_names(selected), [name]))


def raise_not_found(cluster: Cluster, name: str, error: NotFound) -> NoReturn:
    """Raise the error for an experiment that ``cluster`` does not have.

    It is ``error``, or an error that names the backends that have the experiment ``name`` or an
    experiment with a similar name.
    """
    others = quick_names(cluster)
    found = _having(others, [name])
    if not found:
        run = _recorded_run(cluster.backend, [name])
        if run is None:
            _raise_with_similar_names(cluster, name, others, error)
        found = [run.backend]
    places = " and ".join(found)
    raise NotFound(f"no experiment {name!r} on {cluster.backend}; it is on {places}") from error


def _raise_with_similar_names(
    cluster: Cluster, name: str, others: dict[str, list[str]], error: NotFound
) -> NoReturn:
    """Raise ``error``, or an error that suggests the similar names on the ``others``."""
    if did_you_mean(name, cluster.list_experiments()):
        raise error
    places = {known: backend for backend, names in others.items() for known in names}
    hint = did_you_mean(name, places)
    if not hint:
        raise error
    backends = dict.fromkeys(places[known] for known in places if repr(known) in hint)
    raise NotFound(f"no experiment {name!r} on {cluster.backend}{hint} (on {join_names(backends)})")


def cluster_of(backend: str, selected: Cluster) -> Cluster:
    """Return the cluster of a backend, which is ``selected`` if it has this backend."""
    return selected if backend == selected.backend else _new_cluster(backend)


def is_quick(backend: str) -> bool:
    """Return whether a backend lists its experiments without delay."""
    from symphony.cluster.plugins import find_backend
    from symphony.errors import PluginError

    try:
        return find_backend(backend).experiments is not None
    except PluginError:
        return False


def other_clusters(selected: Cluster) -> Iterator[Cluster]:
    """Yield the clusters of the other backends that can list their experiments without delay and
    have at least one experiment.
    """
    for backend, names in quick_names(selected).items():
        if names:
            with suppress(SymphonyError):
                yield _new_cluster(backend)


def slow_clusters(selected: Cluster) -> Iterator[Cluster]:
    """Yield the clusters of the other backends that are configured and slow to respond."""
    for backend in _slow_backends(selected):
        with suppress(SymphonyError):
            yield _new_cluster(backend)


@dataclass
class Response(Generic[Result]):
    """The result of a function that runs in another thread.

    A function that takes too long is left to itself, and does not prevent the exit of the program.
    """

    backend: str
    function: Callable[[], Result]
    _results: list[Result] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        import threading

        self._thread = threading.Thread(target=self._run, daemon=True, name=self.backend)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self.function())
        except Exception as exc:
            self._errors.append(exc)

    def result(self) -> Result:
        """Return the result. Raises `BackendError` if the function takes too long, and otherwise
        the error of the function.
        """
        self._thread.join(RESPONSE_TIMEOUT_SECONDS)
        if self._errors:
            raise self._errors[0]
        if not self._results:
            raise BackendError(
                f"{self.backend} did not respond within {RESPONSE_TIMEOUT_SECONDS:g} s; "
                f"to wait longer, add -b {self.backend}"
            )
        return self._results[0]


# --- the names of the experiments of each backend ---


def quick_names(selected: Cluster) -> dict[str, list[str]]:
    """Return a mapping from the other backends that list their experiments without delay to the
    names of their experiments.
    """
    from symphony.cluster.entry_points import load_attribute
    from symphony.cluster.plugins import installed_backends

    found: dict[str, list[str]] = {}
    for info in installed_backends():
        if info.name == selected.backend or info.experiments is None:
            continue
        # A backend that the user did not name must not make the command fail.
        with suppress(SymphonyError, ImportError, AttributeError, OSError, TypeError, ValueError):
            list_names = load_attribute(info.experiments)
            found[info.name] = list(
                list_names(info.name, _configured_options(info, selected.configuration))
            )
    return found


def _slow_names(selected: Cluster) -> dict[str, list[str]]:
    """Return the names of the experiments of the other backends that are configured and slow."""
    from symphony.commandline.output.terminal import print_note

    responses = [
        Response(cluster.backend, cluster.list_experiments) for cluster in slow_clusters(selected)
    ]
    found: dict[str, list[str]] = {}
    for response in responses:
        try:
            found[response.backend] = response.result()
        except SymphonyError as exc:
            print_note(f"symphony: {exc}")
    return found


def _recorded_run(selected: str, wanted: Sequence[str]) -> Run | None:
    """Return the newest run of an experiment that was launched from this machine on another backend
    and not deleted, or None if there is none. ``wanted`` contains the possible names.

    Only backends that keep their records apart from their experiments, such as Kubernetes, are
    considered. The experiments of the others are listed.
    """
    from symphony.archive import archive

    try:
        runs = archive.find_active([archive.active_directory()])
    except SymphonyError:
        return None
    for run in archive.newest_first(runs):
        if run.backend != selected and run.experiment in wanted:
            return run
    return None


def _names_of_selected(selected: Cluster, given: str, others: Sequence[str]) -> list[str]:
    """Return the names of the experiments of the configured backend.

    If the backend does not respond, the error names the ``others`` that have the experiment.
    """
    try:
        return selected.list_experiments()
    except BackendError as exc:
        if not others:
            raise
        options = _options(others)
        raise BackendError(f"{exc}; for the experiment {given!r} there, add {options}") from exc


def _slow_backends(selected: Cluster) -> list[str]:
    from symphony.cluster.plugins import installed_backends

    configuration = selected.configuration
    if configuration.is_empty():
        return []
    return [
        info.name
        for info in installed_backends()
        if info.name != selected.backend
        and info.experiments is None
        and _is_configured(info, configuration)
    ]


def _is_configured(info: BackendInfo, configuration: ConfiguredValues) -> bool:
    """Return whether the configuration selects experiments of a backend, for example with a
    Kubernetes context.
    """
    options = _configured_options(info, configuration)
    return any(option.where and option.name in options for option in info.options)


def _configured_options(info: BackendInfo, configuration: ConfiguredValues) -> dict[str, Any]:
    names = [option.name for option in info.options]
    options: dict[str, Any] = {}
    for name in (info.name, *info.aliases):
        options.update(configuration.options_for(name, names))
    return options


# --- matching ---


def _possible_names(given: str, selected: Cluster) -> list[str]:
    """Return the names that ``given`` can mean exactly: that of the copy of the working directory
    or, if there is none, with the user name as a prefix, or as it is.
    """
    from symphony.commandline.commands.lookup.own_copy import find_own_copy

    full_name = selected.configuration.experiment_name(given)
    copy = find_own_copy(selected, full_name)
    if copy is not None:
        return [copy.experiment]
    return list(dict.fromkeys([full_name, given]))


def _having(names: dict[str, list[str]], wanted: Iterable[str]) -> list[str]:
    """Return the backends that have an experiment with one of the names in ``wanted``."""
    return [backend for backend, known in names.items() if not set(wanted).isdisjoint(known)]


def _matches(names: dict[str, list[str]], wanted: Iterable[str]) -> list[str]:
    """Return the experiments that begin with the first name in ``wanted`` with which any begins."""
    from symphony.support.select_names import names_beginning_with

    known = [name for of_backend in names.values() for name in of_backend]
    for name in wanted:
        matches = names_beginning_with(name, known)
        if matches:
            return matches
    return []


def _with_partial_name(names: dict[str, list[str]], given: str, wanted: Iterable[str]) -> list[str]:
    """Return the backend that has the experiments that begin with ``given``, if there is one.

    Raises `UsageError` if several backends have such experiments.
    """
    matches = _matches(names, wanted)
    found = _having(names, matches)
    if len(found) > 1:
        places = [
            f"{name} on {backend}"
            for backend in found
            for name in names[backend]
            if name in matches
        ]
        raise UsageError(
            f"experiment {given!r} is ambiguous: {join_names(places)}; type more of the name, or "
            "add -b BACKEND"
        )
    return found


def _ambiguous(given: str, backends: Sequence[str]) -> UsageError:
    return UsageError(
        f"experiment {given!r} exists on {' and '.join(backends)}; name the backend: add "
        f"{_options(backends)}"
    )


def _options(backends: Sequence[str]) -> str:
    return " or ".join(f"-b {backend}" for backend in backends)


def _new_cluster(backend: str) -> Cluster:
    from symphony.cluster import Cluster

    return Cluster.new(backend)
