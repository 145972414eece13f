"""The abstract cluster: matching names, the errors that all backends share, and options."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symphony import (
    BackendError,
    Cluster,
    Experiment,
    ExperimentStatus,
    Manifest,
    NotFound,
    ProcessStatus,
    SpecError,
    Unsupported,
)
from symphony.archive.archive import Run
from symphony.cluster.backend import Backend, ChangeRequest, RecordedRuns
from symphony.cluster.matching import (
    experiment_exists,
    experiment_not_found,
    find_names,
    find_status,
    fuzzy_match,
    select_processes,
)
from symphony.plan.changes import Changes
from symphony.plan.resolve import Defaults

STATUS = ExperimentStatus(
    name="e",
    backend="paper",
    processes=(ProcessStatus(name="lone"), ProcessStatus(name="member", group="g")),
)


class PaperBackend(Backend[Manifest]):
    """A backend with one running experiment, which writes down its changes."""

    def __init__(self) -> None:
        super().__init__("paper")
        self.changed: list[tuple[str, Sequence[str] | None]] = []

    def observe(self, experiment: str) -> ExperimentStatus:
        return replace(STATUS, name=experiment)

    def change(self, request: ChangeRequest) -> Changes:
        if not request.dry_run:
            self.changed.append((request.experiment.name, request.start))
        notes = (f"starts {request.start}",)
        return Changes(experiment=request.experiment.name, backend=self.name, notes=notes)


class PaperCluster(Cluster):
    backend = "paper"

    @functools.cached_property
    def implementation(self) -> PaperBackend:
        return PaperBackend()


def test_an_experiment_is_compared_and_changed_by_its_backend() -> None:
    cluster = PaperCluster()
    seen: list[ExperimentStatus] = []
    assert cluster.diff(Experiment("e"), start=["a"]).notes == ("starts ['a']",)
    assert cluster.implementation.changed == []
    assert cluster.up(Experiment("e"), on_change=seen.append).is_empty
    assert cluster.implementation.changed == [("e", None)]
    assert seen == [STATUS]


def test_a_backend_without_changes_refuses_them() -> None:
    with pytest.raises(Unsupported, match="the paper backend cannot change 'e' while it is runnin"):
        Backend[Manifest]("paper").change(
            ChangeRequest(experiment=Experiment("e"), defaults=Defaults(), options={})
        )


def test_a_backend_without_records_describes_no_launch_and_has_no_recorded_usage() -> None:
    cluster = PaperCluster()
    with pytest.raises(Unsupported, match="the paper backend keeps no description of 'e'"):
        cluster.described_experiment("e")
    assert cluster.recorded_usage("e") == []
    assert cluster.removed_processes("e") == []
    assert cluster.resume_experiments() == {}


def test_a_damaged_description_of_a_launch_is_named(tmp_path: Path) -> None:
    class OneRun(RecordedRuns):
        def find(self, experiment: str) -> Run:
            return Run(tmp_path, {})

    class Damaged(PaperBackend):
        def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
            return {pattern: b"{"}

        @property
        def recorded_runs(self) -> RecordedRuns:
            return OneRun(self)

    cluster = PaperCluster()
    vars(cluster)["implementation"] = Damaged()
    message = rf"the record of experiment 'e' cannot be read \({tmp_path}/record.json is missing"
    with pytest.raises(BackendError, match=message):
        cluster.described_experiment("e")


def test_a_copy_of_a_cluster_has_a_backend_of_its_own() -> None:
    cluster = PaperCluster(start_dir="/")
    backend = cluster.implementation
    copied = cluster.without_kept_options()
    assert copied.implementation is not backend
    assert cluster.implementation is backend
    assert copied.defaults == cluster.defaults


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("agent", ["agent"]),
        ("agent-", ["agent-1", "agent-2"]),
        ("-1", ["agent-1"]),
        ("gent", ["agent", "big-agent"]),
        ("big", ["big-agent"]),
        ("ent-", ["agent-1", "agent-2"]),
        ("x", []),
    ],
)
def test_fuzzy_match(name: str, expected: list[str]) -> None:
    assert fuzzy_match(name, ["agent", "agent-1", "agent-2", "big-agent"]) == expected


def test_find_status() -> None:
    assert find_status(STATUS, "member").group == "g"
    assert find_status(STATUS, "member", "g").name == "member"


@pytest.mark.parametrize(
    ("process", "group", "message"),
    [
        ("membre", None, "experiment 'e' has no process 'membre'; did you mean 'member'"),
        ("zzz", None, "experiment 'e' has no process 'zzz'; its processes are lone, member"),
        (
            "member",
            "h",
            "is in group 'g', not in 'h'; write g/member",
        ),
        ("lone", "g", "process 'lone' of experiment 'e' is in no group, not in 'g'; write lone"),
    ],
)
def test_unknown_process(process: str, group: str | None, message: str) -> None:
    with pytest.raises(NotFound) as error:
        find_status(STATUS, process, group)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("agent", ["agent-0", "agent-1", "agent-0-1"]),
        ("agent-0", ["agent-0"]),
        ("agent-*", ["agent-0", "agent-1", "agent-0-1", "agent-x"]),
        ("g/agent", ["agent-1"]),
        ("g/agent-1", ["agent-1"]),
        ("g", ["agent-1"]),
        ("h", ["in-0", "in-1"]),
        ("h-1", ["in-1"]),
        ("*/in-?", ["in-0", "in-1"]),
    ],
)
def test_select_processes(name: str, expected: list[str]) -> None:
    names = {"agent-0": None, "agent-1": "g", "agent-0-1": None, "agent-x": None}
    groups = {**names, "in-0": "h-0", "in-1": "h-1"}
    processes = tuple(ProcessStatus(name=key, group=group) for key, group in groups.items())
    status = ExperimentStatus(name="e", backend="paper", processes=processes)
    assert [process.name for process in select_processes(status, [name])] == expected
    assert select_processes(status, None) == list(processes)
    with pytest.raises(NotFound, match="matches 'x-"):
        select_processes(status, [name, "x-*"])


def test_find_names() -> None:
    assert find_names(STATUS, None) == find_names(STATUS, []) == ["lone", "member"]
    assert find_names(STATUS, ["g/member", "lone", "member"]) == ["member", "lone"]
    for wrong in ("h/member", "membre"):
        with pytest.raises(NotFound):
            find_names(STATUS, ["lone", wrong])


def test_errors_about_an_experiment() -> None:
    similar = experiment_not_found("lerner", ["learner", "x"])
    assert str(similar) == "no experiment 'lerner'; did you mean 'learner'?"
    other = experiment_not_found("zzz", ["rl"])
    assert str(other) == "no experiment 'zzz'; existing experiments: rl"
    nothing = experiment_not_found("zzz", [], "/state/local")
    assert str(nothing) == "no experiment 'zzz'; there are no experiments in /state/local"
    assert "was not changed; delete it, or launch with force" in str(experiment_exists("rl"))


def test_new_experiment_takes_the_keywords_of_experiment() -> None:
    options: dict[str, Any] = {
        "secrets": "token",
        "port_range": (1, 2),
        "preamble_cmds": "a",
        "start_dir": "d",
    }
    created = Cluster.new("local").new_experiment("e", **options)
    assert created.dump_dict() == Experiment("e", **options).dump_dict()


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("value", "found"), [("x1", "'x1'"), ({"name": "x1"}, "{'name': 'x1'}"), (None, "None")]
)
def test_launch_of_something_else_than_an_experiment(
    tmp_path: Path, value: Any, found: str, dry_run: bool
) -> None:
    cluster = Cluster.new("local", state_dir=tmp_path)
    with pytest.raises(SpecError) as caught:
        cluster.launch(value, dry_run=dry_run)
    message = str(caught.value)
    assert message.startswith("experiment must be an Experiment, such as cluster.new_experiment")
    assert message.endswith(f", not {found}")


def test_an_object_that_is_given_instead_of_its_name(tmp_path: Path) -> None:
    cluster: Any = Cluster.new("local", state_dir=tmp_path)
    with pytest.raises(SpecError) as caught:
        cluster.delete(Experiment("rl"))
    assert str(caught.value) == (
        "experiment must be text, not Experiment('rl', 0 processes); use its name, 'rl'"
    )


# --- options ---


@pytest.mark.parametrize(("option", "similar"), [("state_dri", "state_dir"), ("gpu", "gpus")])
def test_unknown_option(option: str, similar: str) -> None:
    message = rf"backend 'local' has no option '{option}'; did you mean '{similar}'"
    with pytest.raises(SpecError, match=message) as error:
        Cluster.new("local", **{option: "x"})
    assert error.value.path == (option,)


def test_a_removed_option_is_refused_with_what_to_do() -> None:
    message = r"the option 'git_image' of the backend 'kube' was removed; .* remove the option"
    with pytest.raises(SpecError, match=message) as error:
        Cluster.new("kube", git_image="registry.example/git:2")
    assert error.value.path == ("git_image",)


def test_wrong_value_of_an_option() -> None:
    with pytest.raises(SpecError, match="hold_ports .* not 'bounded'; did you mean 'bound'"):
        Cluster.new("local", hold_ports="bounded")


def test_options_of_base_classes() -> None:
    local = type(Cluster.new("local"))

    class WithOptions(local):  # type: ignore[valid-type,misc]
        def __init__(self, *, own: str, **options: Any) -> None:
            super().__init__(**options)

    class WithoutOptions(local):  # type: ignore[valid-type,misc]
        def __init__(self, *, own: str) -> None:
            super().__init__()

    assert {"own", "state_dir", "start_dir"} <= set(WithOptions.option_names())
    assert WithoutOptions.option_names() == ["own"]
    with pytest.raises(SpecError, match="backend 'mine' has no option 'start_dir'"):
        WithoutOptions.with_options("mine", {"start_dir": "/"})


def test_a_type_error_in_a_constructor_is_not_an_unknown_option() -> None:
    class Broken(type(Cluster.new("local"))):  # type: ignore[misc]
        def __init__(self, *, own: str) -> None:
            raise TypeError("got an unexpected keyword argument 'own'")

    with pytest.raises(TypeError):
        Broken.with_options("broken", {"own": "x"})


@pytest.mark.one_python
def test_selection_examines_each_process_once_for_any_number_of_names() -> None:
    """A selection that compared each name with each process would take minutes."""
    processes = tuple(ProcessStatus(name=f"p-{number}") for number in range(20_000))
    status = ExperimentStatus(name="e", backend="paper", processes=processes)
    names = [process.name for process in processes]
    assert select_processes(status, names) == list(processes)
    assert len(select_processes(status, ["p"])) == len(processes)
