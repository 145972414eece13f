"""The conditions of `Cluster.wait`, its timeout, and the progress line of a launch."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from symphony import Cluster, ExperimentStatus, ProcessStatus, SpecError
from symphony.cluster.matching import still_awaited, wait_timeout
from symphony.commandline.output.views import startup_line
from symphony.status import ReasonCode, State

STATUS = ExperimentStatus(
    name="e",
    backend="paper",
    processes=(
        ProcessStatus(name="new"),
        ProcessStatus(name="on", group="g", state=State.RUNNING, started=1.0),
        ProcessStatus(name="up", state=State.RUNNING, started=1.0, ready=True),
        ProcessStatus(
            name="late",
            state=State.RUNNING,
            started=1.0,
            not_ready_in_time=True,
            reason="not ready within 5 s",
        ),
        ProcessStatus(name="again", state=State.PENDING, started=1.0, ended=2.0),
        ProcessStatus(name="never", state=State.FAILED),
        ProcessStatus(name="done", state=State.SUCCEEDED, started=1.0, ended=2.0),
        ProcessStatus(name="lost", state=State.UNKNOWN),
    ),
)


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("ended", ["new", "g/on", "up", "late", "again"]),
        ("ready", ["new", "g/on", "again"]),
        ("started", ["new"]),
    ],
)
def test_processes_that_are_still_awaited(until, expected):
    assert still_awaited(STATUS, until) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["up"], ["up"]), (["g", "done"], ["g/on"]), (["never"], []), (["*e*"], ["new", "late"])],
)
def test_selected_processes_that_are_still_awaited(names, expected):
    assert still_awaited(STATUS, "ended", names) == expected


def test_unknown_condition():
    with pytest.raises(
        SpecError, match="until must be started, ready, ended, not 'start'; did you mean 'started'"
    ):
        still_awaited(STATUS, "start")


def test_a_timeout_names_the_processes_that_run_and_those_that_have_failed():
    processes = (
        ProcessStatus(name="a", state=State.RUNNING),
        ProcessStatus(name="b", state=State.FAILED, exit_code=3),
        ProcessStatus(name="c", state=State.FAILED),
        ProcessStatus(name="d", state=State.FAILED, exit_code=143, stopped=True),
    )
    status = ExperimentStatus(name="e", backend="paper", processes=processes)
    assert str(wait_timeout(status, "ended", ["a"], 5)) == (
        "experiment 'e' is still running after 5 s: a; failed: b (exit code 3), c"
    )


def test_a_timeout_says_what_each_process_waits_for():
    processes = (
        ProcessStatus(name="a", state=State.RUNNING),
        ProcessStatus(name="b", state=State.RUNNING, test_result="exit code 2: no response"),
        ProcessStatus(name="c", group="g", state=State.PENDING, reason="waiting for b"),
        ProcessStatus(name="d", state=State.RUNNING, ready=True),
    )
    running = ExperimentStatus(name="e", backend="paper", processes=processes)
    assert str(wait_timeout(running, "ready", ["a", "b", "g/c"], 0.5)) == (
        "experiment 'e' is not ready after 0.5 s: a, b (exit code 2: no response), "
        "g/c (waiting for b)"
    )


def test_wait_on_the_local_backend(tmp_path: Path):
    cluster = Cluster.new("local", state_dir=tmp_path)
    experiment = cluster.new_experiment("e")
    program = "import time; time.sleep(1000)"
    experiment.new_process(
        "slow", command=[sys.executable, "-c", program], env={"API_TOKEN": "a-secret-token"}
    ).ready(command='echo "$API_TOKEN is refused"; exit 7', timeout=600)
    experiment.new_process("bad", command=[sys.executable, "-c", "raise SystemExit(3)"])
    cluster.launch(experiment)
    try:
        started = cluster.wait("e", until="started", timeout=30)
        assert all(process.started for process in started)
        while not next(iter(cluster.describe_experiment("e"))).test_result:
            time.sleep(0.01)
        with pytest.raises(TimeoutError) as caught:
            cluster.wait("e", until="ready", timeout=0.1)
        assert str(caught.value) == (
            "experiment 'e' is not ready after 0.1 s: slow (exit code 7: (hidden) is refused); "
            "failed: bad (exit code 3)"
        )
    finally:
        cluster.delete("e")


# --- the progress of a launch ---


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (
            STATUS.processes,
            "e: 1 of 5 ready, 2 pending, 2 started, 1 failed, 1 succeeded, 1 unknown",
        ),
        ((), "e: 0 of 0 ready"),
    ],
)
def test_progress_counts_states(processes, expected):
    assert (
        startup_line(ExperimentStatus(name="e", backend="paper", processes=processes)) == expected
    )


@pytest.mark.parametrize(
    ("reason_code", "stage"),
    [
        (ReasonCode.UNSCHEDULABLE, "unscheduled"),
        (ReasonCode.SCHEDULING, "unscheduled"),
        (ReasonCode.PULLING_IMAGE, "pulling image"),
        (ReasonCode.IMAGE_UNAVAILABLE, "without image"),
        (ReasonCode.CREATING, "being created"),
        (ReasonCode.WAITING, "waiting for others"),
        (ReasonCode.BACKING_OFF, "restarting"),
        (ReasonCode.NOT_PERMITTED, "pending"),
        (None, "pending"),
    ],
)
def test_progress_shows_why_processes_are_pending(reason_code, stage):
    both = (
        ProcessStatus(name="a", reason_code=reason_code),
        ProcessStatus(name="b", state=State.RUNNING, ready=True),
    )
    assert (
        startup_line(ExperimentStatus(name="e", backend="p", processes=both))
        == f"e: 1 of 2 ready, 1 {stage}"
    )
