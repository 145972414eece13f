"""Reading the records of runs and the states of active runs, for the commands and the views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.errors import SymphonyError, Unreachable
from symphony.support.hidden_values import HiddenValues, secret_values

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.archive.archived_usage import RecordedUsage, Summary
    from symphony.cluster.cluster import Cluster
    from symphony.status import ExperimentStatus


def open_run(cluster: Cluster, run: Run) -> Cluster:
    """Return a cluster that reads the record of a run; see `symphony.Cluster.at_run`."""
    return cluster_of_run(cluster, run).at_run(run)


def cluster_of_run(cluster: Cluster, run: Run) -> Cluster:
    """Return a cluster of the backend on which a run was launched."""
    # A cluster of the same backend can have options, such as the directory with its records.
    if run.is_archived and run.backend in ("", cluster.backend):
        return cluster
    is_elsewhere = run.backend != cluster.backend or bool(run.summary.get("options"))
    return cluster_of_record(run) if run.backend and is_elsewhere else cluster


def cluster_of_record(run: Run) -> Cluster:
    """Return the cluster on which a run was launched."""
    from symphony.cluster import Cluster

    return Cluster.new(run.backend, **_recorded_options(run, "options"))


def cluster_for_rerun(run: Run, selected: Cluster | None) -> Cluster:
    """Return a cluster that launches the experiment of a run again, with the options of the run.

    ``selected`` is the cluster that the user has selected, or None for that of the run. Its own
    options take precedence.
    """
    from symphony.archive.run_record import known_launch_options
    from symphony.cluster import Cluster, plugins

    backend = plugins.open_backend(run.backend, Cluster) if selected is None else type(selected)
    recorded = _recorded_options(run, "launch_options")
    kept = known_launch_options(recorded, backend.launch_option_names)
    if selected is None:
        return Cluster.new(run.backend, **{**kept, **_recorded_options(run, "options")})
    if selected.backend != run.backend or not kept:
        return selected
    return Cluster.new(run.backend, **{**kept, **selected.given_options})


def _recorded_options(run: Run, key: str) -> dict[str, Any]:
    from symphony.archive.run_record import RECORD_FILE, read_json

    options = (read_json(run.path / RECORD_FILE) or {}).get(key)
    return options if isinstance(options, dict) else {}


def find_run_status(cluster: Cluster, run: Run) -> ExperimentStatus | None:
    """Return the status of a run, or None if it is unknown.

    Raises `Unreachable` if the server of the backend does not respond.
    """
    try:
        return open_run(cluster, run).describe_experiment(run.experiment)
    except Unreachable:
        raise
    except SymphonyError:
        return None


def find_run_usage(cluster: Cluster, run: Run) -> RecordedUsage:
    """Return the recorded resource use of a run.

    If the cluster of the run cannot be asked, it is what the record on this machine contains.
    """
    from symphony.archive.archived_usage import read_usage

    try:
        return cluster_of_run(cluster, run).usage_of_run(run)
    except SymphonyError:
        return read_usage(run.path)


def displayed_results(
    cluster: Cluster,
    runs: Sequence[Run],
    *,
    on_unreachable: Callable[[str, SymphonyError], None],
) -> list[dict[str, Any]]:
    """Return the summaries of runs, with the current states of active runs.

    ``on_unreachable`` is called once for each backend whose server does not respond, with its name
    and the error. The backend is not asked again.
    """
    results = []
    unreachable: set[str] = set()
    for run in runs:
        status = None
        if not run.is_archived and run.backend not in unreachable:
            try:
                status = find_run_status(cluster, run)
            except Unreachable as exc:
                unreachable.add(run.backend)
                on_unreachable(run.backend, exc)
        results.append(displayed_result(run, status))
    return results


def displayed_result(run: Run, status: ExperimentStatus | None) -> dict[str, Any]:
    """Return a run's summary. If the run is active, the state is that of ``status``."""
    from symphony.archive.code_state import code_words
    from symphony.archive.run_record import SUMMARY_KEYS, duration_of, result_of

    result = {key: run.summary.get(key) for key in SUMMARY_KEYS}
    if not run.is_archived:
        identity = {"run": run.name, "experiment": run.experiment, "backend": run.backend}
        result = result_of(status, {**identity, "launched": run.launched}, 0)
        if status is not None and not status.ended:
            # Processes that have exited do not determine how the run will end.
            result.update(exit_code=None, ended=None, duration=None)
    more = {
        "duration": duration_of(result),
        "archived": run.is_archived,
        "code": code_words(run.path),
    }
    return {**result, **more}


def comparable_values(cluster: Cluster, run: Run) -> dict[str, Any]:
    """Return the values of a run that `compare` compares."""
    from symphony.archive.code_archives import SNAPSHOTS_KEY, read_snapshots
    from symphony.archive.code_state import diff_digest

    record = run.load_record()
    status = None if run.is_archived else find_run_status(cluster, run)
    result = displayed_result(run, status)
    duration = result["duration"]
    return {
        "state": result["state"],
        "exit_code": result["exit_code"],
        "duration_seconds": None if duration is None else round(duration, 1),
        "code": result["code"],
        "uncommitted_changes": diff_digest(run.path),
        SNAPSHOTS_KEY: {name: item.digest for name, item in read_snapshots(run.path).items()},
        **{key: record.get(key) for key in ("backend", "host", "user", "python", "symphony")},
        "definition": record.get("definition"),
        "usage": _usage_words(find_run_usage(cluster, run).summary),
    }


def hidden_values(runs: Iterable[Run]) -> HiddenValues:
    """Return the values in the descriptions of runs that views hide."""
    records = [run.load_record() for run in runs]
    return HiddenValues(secret_values(records))


def _usage_words(summary: Summary) -> dict[str, dict[str, object]]:
    """Return the mean and the peak of each recorded value as text, by process and value."""
    from symphony.support.format_usage import RECORDED_VALUES

    words: dict[str, dict[str, object]] = {}
    for process, values in summary.items():
        words[process] = {}
        for name, item in values.items():
            _, shown = RECORDED_VALUES[name]
            words[process][name] = {
                "mean": str(shown(item.mean)),
                "peak": str(shown(item.peak)),
            }
    return words
