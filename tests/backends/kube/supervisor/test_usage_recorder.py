"""Recording the resource use in a supervisor, with stand-ins for the API server and the clock."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symphony.archive.archive import active_directory
from symphony.archive.archived_usage import parse_usage
from symphony.archive.run_record import RECORD_FILE
from symphony.errors import BackendError
from symphony.plan.policies import Policies
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.lifecycle.supervisor import stored_usage, usage_recorder
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.lifecycle.supervisor.stored_usage import (
    UsageInSecret,
    fetch_usage,
    open_record,
    recorded_content,
    usage_object,
)
from symphony_kube.lifecycle.supervisor.usage_recorder import Measurements, Pauses, UsageRecorder

SCOPE = Scope(experiment="e", namespace="ns", shared=True, run="r1")
NOT_SERVED = ApiError("not found", status=404, reason="NotFound", detail="not found")
DOWN = ApiError("down", status=503, reason="ServiceUnavailable", detail="no endpoints")


def pod(name: str, second: int, cpu: str = "500m") -> dict[str, Any]:
    """The metrics of a Pod that were measured at a second of a certain minute."""
    return {
        "metadata": {"name": name},
        "timestamp": f"2026-11-26T19:00:{second:02}Z",
        "containers": [{"name": name, "usage": {"cpu": cpu, "memory": "1Mi"}}],
    }


def names(selected: tuple[list[Any], float]) -> list[str]:
    return [item["metadata"]["name"] for item in selected[0]]


def test_a_value_of_the_metrics_server_is_selected_once() -> None:
    measurements = Measurements(0.0)
    selected, latest = measurements.select([pod("a", 10), pod("b", 11)], 0.0)
    assert names((selected, latest)) == ["a", "b"]
    assert names(measurements.select([pod("a", 10), pod("b", 11)], latest)) == []
    assert names(measurements.select([pod("a", 25), pod("b", 11)], latest)) == ["a"]
    # Another metrics server, whose measurements are older, answers.
    later = measurements.select([pod("a", 25)], latest)[1]
    assert names(measurements.select([pod("a", 20), pod("b", 20)], latest + 14)) == []
    # The next supervisor does not select what its predecessor has recorded.
    assert names(Measurements(latest).select([pod("a", 10), pod("b", 11)], latest)) == []
    assert names(Measurements(latest).select([pod("a", 26), pod("b", 11)], later)) == ["a"]
    assert names(Measurements(0.0).select([{"metadata": {"name": "a"}}], 0.0)) == []


def test_a_metrics_server_is_asked_a_few_times_for_each_value() -> None:
    now, calls, seen = 0.0, 0, 0.0
    pauses = Pauses(lambda: now)
    while now < 150:
        calls += 1
        measured = now // 15 * 15
        is_new, seen = measured > seen, measured
        now += pauses.next(is_new=is_new)
        assert now - measured < 15 + 15 / 8, "no value is missed"
    assert calls < 80
    # A server that measures once a second is asked once a second.
    for _ in range(20):
        pause = pauses.next(is_new=True)
        now += pause
    assert pause == 1.0
    now += 1000
    assert pauses.next(is_new=False) == usage_recorder.LONGEST_PAUSE_SECONDS


class Metrics:
    """Answers of a metrics server, each of which is given once. The last one is repeated."""

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self.answers = list(answers)

    def call(self, *_: object, **__: object) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer}


class Store:
    """A store that passes the samples on to the test."""

    latest = 0.0

    def __init__(self) -> None:
        self.samples: queue.Queue[ExperimentUsage] = queue.Queue()
        self.flushed = 0

    def append(self, sample: ExperimentUsage) -> None:
        self.latest = sample.at
        self.samples.put(sample)

    def flush(self) -> None:
        self.flushed += 1


def status(state: State) -> ExperimentStatus:
    process = ProcessStatus(name="a", state=state)
    return ExperimentStatus(name="e", backend="kube", processes=(process,))


def run_with(*, record_usage: bool) -> SupervisedRun:
    policies = Policies(record_usage=record_usage)
    return SupervisedRun(scope=SCOPE, roster=(), units={}, policies=policies)


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RETRY_SECONDS", "SHORTEST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(usage_recorder, name, 0.001)
    return


@pytest.mark.usefixtures("_no_pauses")
def test_a_problem_is_reported_once_until_there_are_metrics() -> None:
    answers = [NOT_SERVED, NOT_SERVED, [], [pod("a", 10)], NOT_SERVED, DOWN, DOWN]
    store, errors = Store(), []
    recorder = UsageRecorder(
        KubeExperiment(Metrics(*answers, [pod("a", 20), pod("other", 20)]), SCOPE),
        lambda: store,
        errors.append,
    )
    recorder.update(run_with(record_usage=True), status(State.RUNNING))
    samples = [store.samples.get(timeout=30) for _ in range(2)]
    recorder.close()
    expected = (ProcessUsage(process="a", cpu=0.5, memory=1 << 20),)
    assert [sample.processes for sample in samples] == [expected] * 2
    assert samples[1].at == samples[0].at + 10
    assert store.samples.empty()
    assert ["serves no metrics" in error for error in errors] == [True, True, False]
    assert "does not respond" in errors[2]


@pytest.mark.usefixtures("_no_pauses")
def test_only_running_processes_are_recorded_and_only_if_the_policies_require_it() -> None:
    store = Store()
    recorder = UsageRecorder(
        KubeExperiment(Metrics([pod("a", 10)], [pod("a", 20)]), SCOPE), lambda: store, print
    )
    for state, record_usage in ((State.RUNNING, False), (State.PENDING, True)):
        recorder.update(run_with(record_usage=record_usage), status(state))
        assert recorder._thread is None
    recorder.update(run_with(record_usage=True), status(State.RUNNING))
    store.samples.get(timeout=30)
    ends = ((State.SUCCEEDED, True), (State.RUNNING, False))
    for count, (state, record_usage) in enumerate(ends):
        recorder.update(run_with(record_usage=record_usage), status(state))
        assert not recorder._thread.is_alive()
        assert store.flushed == count + 1
        recorder.update(run_with(record_usage=True), status(State.RUNNING))
    recorder.close()
    assert not recorder._thread.is_alive()


# --- the record of the run ---


def test_a_supervisor_in_the_cluster_continues_the_record_of_a_detached_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    run = replace(run_with(record_usage=True), run_name="e-20261126-190000-7f3a")
    outside = active_directory().parent / "e"
    outside.mkdir(parents=True)
    (outside / RECORD_FILE).write_text("{}")
    record = active_directory() / run.run_name
    record.mkdir(parents=True)
    for other in (run, replace(run, run_name="../e"), replace(run, run_name="")):
        with pytest.raises(BackendError, match="this machine has no record of the run"):
            open_record(other)
        assert recorded_content(other) == b""
    (record / RECORD_FILE).write_text("{}")
    open_record(run).append(sample(1.0))
    api: Any = Secrets(recorded_content(run))
    UsageInSecret(KubeExperiment(api, SCOPE), tmp_path).append(sample(2.0))
    assert recorded(api) == [1.0, 2.0]


# --- the Secret ---


class Secrets:
    """An API server with one Secret, which rejects changes of an earlier version."""

    def __init__(self, content: bytes = b"") -> None:
        self.secret = usage_object(SCOPE, content)
        self.secret["metadata"]["labels"]["symphony/run"] = SCOPE.run
        self.version = 1
        self.patches = 0

    def find(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/ns/secrets/e-symphony-usage"
        metadata = {**self.secret["metadata"], "resourceVersion": str(self.version)}
        return {**self.secret, "metadata": metadata}

    def call(self, method: str, path: str, *, body: Any = None, **_: object) -> dict[str, Any]:
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                raise ApiError("conflict", status=409, reason="Conflict", detail="conflict")
            self.version += 1
            self.patches += 1
            self.secret["data"] = body["data"]
        return self.find(path)


def sample(at: float, memory: int = 100) -> ExperimentUsage:
    return ExperimentUsage(at=at, processes=(ProcessUsage(process="a", cpu=0.5, memory=memory),))


def recorded(api: Any, scope: Scope = SCOPE) -> list[float]:
    content = fetch_usage(KubeExperiment(api, scope))
    return [] if content is None else [item.at for item in parse_usage(content).samples]


def test_the_next_supervisor_continues_with_exact_statistics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_usage, "MAX_BYTES", 8192)
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(stored_usage, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    api: Any = Secrets()
    count = 900
    store = UsageInSecret(KubeExperiment(api, SCOPE), tmp_path)
    for number in range(1, count + 1):
        now.seconds += 15
        store.append(sample(float(number), memory=900 if number == 17 else 100))
        if number % 300 == 0:
            store.flush()
            store = UsageInSecret(KubeExperiment(api, SCOPE), tmp_path)
            assert store.latest == number
    assert api.patches <= count / 2 + 3, "the Secret is written at most once in 30 s"
    memory = parse_usage(fetch_usage(KubeExperiment(api, SCOPE)) or b"").summary["a"]["memory"]
    assert (memory.count, memory.peak) == (count, 900)
    assert memory.mean == pytest.approx((count * 100 + 800) / count)
    assert recorded(api)[0] < count / 4, "the beginning of the run is visible"
    assert recorded(api, Scope(experiment="e", namespace="ns", shared=True, run="r2")) == []


def test_of_two_supervisors_only_one_writes(tmp_path: Path) -> None:
    api: Any = Secrets()
    directories = [tmp_path / "first", tmp_path / "second"]
    for directory in directories:
        directory.mkdir()
    first, second = (
        UsageInSecret(KubeExperiment(api, SCOPE), directory) for directory in directories
    )
    second.append(sample(1.0))
    first.append(sample(1.0))
    assert first.latest == 1.0
    first.append(sample(2.0))
    first.flush()
    assert recorded(api) == [1.0, 2.0]
    api.secret["data"] = {"usage": "damaged"}
    assert recorded(api) == []
    assert UsageInSecret(KubeExperiment(api, SCOPE), tmp_path).latest == 0
