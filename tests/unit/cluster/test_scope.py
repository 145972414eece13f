"""A scope is asked before every method of a backend that concerns an experiment."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from symphony.archive.archive import Run
from symphony.cluster import Cluster, factory
from symphony.cluster.backend import Access, Backend, ChangeRequest, LaunchRequest, RecordedRuns
from symphony.cluster.backend.inspection import Watch
from symphony.cluster.backend.scope import (
    OutOfScope,
    Scope,
    ScopedBackend,
    limit_clusters,
)
from symphony.cluster.results import WatchedStatuses
from symphony.errors import NotFound

NAMES = ["mine", "rl-1", "rl-2", "other"]
ONLY_RL = Scope(patterns=("rl-*",))
# These take no experiment, or are tested on their own.
OTHERS = {
    "names",
    "watch",
    "launch",
    "change",
    "check",
    "list_all",
    "active_paths",
    "at_run",
    "resume",
}


# A new method must be added to one of these.
READING = {
    *("observe", "wait", "record", "events", "details", "topology", "external_addresses"),
    *("usage", "output", "logs", "find", "forward"),
}
CHANGING = {"delete", "request", "exec", "attach", "copy"}


def run_of(name: str, origin: Path | None, base: Path | None = None) -> Run:
    summary = {"experiment": name, "backend": "fake"}
    if origin is not None:
        summary["origin"] = str(origin)
    if base is not None:
        summary["base_directory"] = str(base)
    return Run(Path(f"/runs/{name}"), summary)


def fake_backend(runs: list[Run] = []) -> Any:  # noqa: B006
    """Return a backend with the experiments `NAMES`, which records its calls."""
    backend = mock.create_autospec(Backend, instance=True)
    backend.names.return_value = NAMES
    backend.access = mock.create_autospec(Access, instance=True)
    backend.recorded_runs = mock.create_autospec(RecordedRuns, instance=True)
    backend.recorded_runs.list_all.return_value = runs
    by_name = {run.experiment: run for run in runs}
    backend.recorded_runs.find.side_effect = by_name.get
    return backend


def scoped(backend: Any, scope: Scope) -> Any:
    return ScopedBackend(backend, scope)


def methods(cls: type) -> list[str]:
    found = inspect.getmembers(cls, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in OTHERS]


def parts(backend: Any) -> list[tuple[Any, type]]:
    return [(backend, Backend), (backend.access, Access), (backend.recorded_runs, RecordedRuns)]


def test_every_method_of_an_experiment_asks_the_scope() -> None:
    backend = fake_backend()
    for (guarded, cls), (whole, _) in zip(
        parts(scoped(backend, ONLY_RL)), parts(backend), strict=True
    ):
        for name in methods(cls):
            parameters = list(inspect.signature(getattr(cls, name)).parameters)
            assert parameters[1] == "experiment", name
            with pytest.raises(OutOfScope, match="'other' is out of scope: its name must match"):
                getattr(guarded, name)("other")
            getattr(whole, name).assert_not_called()
    backend.observe.return_value = "status"
    assert scoped(backend, ONLY_RL).observe("rl-1") == "status"


def test_every_change_is_refused_if_only_reading_is_in_scope() -> None:
    backend = fake_backend()
    refused, allowed = set(), set()
    for guarded, cls in parts(scoped(backend, Scope(read_only=True))):
        for name in methods(cls):
            # The arguments after the name do not matter, because the fake would refuse them.
            try:
                getattr(guarded, name)("mine")
            except OutOfScope:
                refused.add(name)
            except TypeError:
                allowed.add(name)
            else:
                allowed.add(name)
    assert (refused, allowed) == (CHANGING, READING)


def test_lists_contain_what_is_in_scope() -> None:
    backend = fake_backend([run_of("rl-1", None), run_of("other", None)])
    statuses: Any = [SimpleNamespace(name=name) for name in NAMES]
    watch = Watch(lambda: WatchedStatuses(statuses, "outage"), lambda _: None)
    backend.watch.return_value.__enter__.return_value = watch
    limited = scoped(backend, ONLY_RL)
    assert limited.names() == ["rl-1", "rl-2"]
    assert [run.experiment for run in limited.recorded_runs.list_all()] == ["rl-1"]
    with limited.watch(None) as seen:
        read = seen.read()
    assert ([status.name for status in read.statuses], read.outage) == (["rl-1", "rl-2"], "outage")
    with pytest.raises(OutOfScope), limited.watch("other"):
        pass
    with pytest.raises(OutOfScope):
        limited.recorded_runs.at_run(run_of("other", None))
    with pytest.raises(OutOfScope):
        limited.recorded_runs.resume(dry_run=True)


@pytest.mark.parametrize(
    ("origin", "base", "is_mine"),
    [
        ("here", None, True),
        ("elsewhere", None, False),
        ("elsewhere", "here", False),
        # A program described the experiment, so it has no file.
        (None, "here", True),
        (None, "here/src", True),
        (None, "elsewhere", False),
        (None, None, False),
    ],
)
def test_the_origin_is_that_of_the_record(
    tmp_path: Path, origin: str | None, base: str | None, is_mine: bool
) -> None:
    (tmp_path / "here/.git").mkdir(parents=True)
    (tmp_path / "here/src").mkdir()
    (tmp_path / "elsewhere").mkdir()
    run = run_of("mine", origin and tmp_path / origin, base and tmp_path / base)
    limited = scoped(fake_backend([run]), Scope(origin=str(tmp_path / "here")))
    assert (limited.names(), limited.recorded_runs.list_all()) == (
        (["mine"], [run]) if is_mine else ([], [])
    )
    if not is_mine:
        with pytest.raises(OutOfScope, match=f"not from {tmp_path}/here"):
            limited.observe("mine")
    # An experiment that does not exist is not out of scope, and no other name is suggested.
    with pytest.raises(NotFound) as found:
        limited.observe("othe")
    assert "'other'" not in str(found.value)


def described(name: str, file: Path | None, base: Path | None = None) -> Any:
    return SimpleNamespace(name=name, file=file, base_dir=base)


def launch(limited: Any, experiment: Any, *, dry_run: bool = False) -> Any:
    return limited.launch(
        LaunchRequest(experiment=experiment, defaults=mock.Mock(), options={}, dry_run=dry_run)
    )


def change(limited: Any, experiment: Any, *, dry_run: bool = False) -> Any:
    return limited.change(
        ChangeRequest(experiment=experiment, defaults=mock.Mock(), options={}, dry_run=dry_run)
    )


def test_launches_and_changes_need_a_name_and_a_directory_in_scope(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    runs = [run_of("rl-1", here), run_of("rl-2", elsewhere)]
    limited = scoped(fake_backend(runs), Scope(patterns=("rl-*",), origin=str(here)))
    for do in (launch, change):
        assert do(limited, described("rl-1", here / "rl.yml"))
        # A program without a file has the directory of its relative paths.
        assert do(limited, described("rl-1", None, here))
        for refused in (
            described("other", here / "rl.yml"),
            described("rl-1", elsewhere / "rl.yml"),
            described("rl-1", None, elsewhere),
            # The existing experiment would be replaced.
            described("rl-2", here / "rl.yml"),
        ):
            with pytest.raises(OutOfScope):
                do(limited, refused)
    assert launch(limited, described("rl-new", here / "rl.yml"))


def test_a_dry_run_is_no_change() -> None:
    limited = scoped(fake_backend(), Scope(read_only=True))
    for do in (launch, change):
        assert do(limited, described("mine", None), dry_run=True)
        with pytest.raises(OutOfScope, match="only reading is in scope"):
            do(limited, described("mine", None))


def test_all_clusters_are_limited_also_their_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "limit_class", None)
    whole = Cluster.new("local", state_dir=tmp_path)
    limit_clusters(ONLY_RL)
    cluster = Cluster.new("local", state_dir=tmp_path)
    assert isinstance(cluster, type(whole))
    for limited in (cluster, cluster.without_kept_options()):
        with pytest.raises(OutOfScope):
            limited.describe_experiment("other")
        with pytest.raises(NotFound):
            limited.describe_experiment("rl-1")
