"""The records of runs: identifiers, the archive, retention, and the state of the code."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from symphony import Cluster, Experiment
from symphony.archive import archive, code_state, run_record
from symphony.archive.archive import Retention, Run
from symphony.archive.differences import find_differences
from symphony.cluster.recorded_run import RecordBackend
from symphony.errors import BackendError, NotFound, SpecError, Unsupported
from symphony.plan.topology import Service, of_status
from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State

# Containers often run with such users.
NAMELESS_USER = 4321987


def make_run(name: str, experiment: str = "rl", launched: float = 0.0, size: int = 0) -> Run:
    summary = {"run": name, "experiment": experiment, "launched": launched, "bytes": size}
    return Run(Path("/runs") / name, summary)


RUNS = [make_run("rl-20261122-1-b", launched=3), make_run("rl-20261122-1-a", launched=2)]
RUNS.append(make_run("gan-20261121-1-a", "gan", launched=1))


def test_the_identifier_contains_the_name_and_the_local_time() -> None:
    name = run_record.run_name("rl", 0.0, "7f3a99")
    assert run_record.is_run_name(name)
    assert name.startswith(("rl-1969", "rl-1970"))
    assert name.endswith("-7f3a")


@pytest.mark.parametrize("value", ["../rl-20261122-093011-7f3a", "rl", "", None, 5])
def test_other_values_are_not_identifiers(value: object) -> None:
    assert not run_record.is_run_name(value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("rl-20261122-1-a", "rl-20261122-1-a"),
        ("rl", "rl-20261122-1-b"),
        ("gan", "gan-20261121-1-a"),
        ("gan-2026", "gan-20261121-1-a"),
    ],
)
def test_a_run_is_found_by_its_identifier_its_beginning_or_its_experiment(
    given: str, found: str
) -> None:
    assert archive.find_run(RUNS, given).name == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rl-2", "several runs begin with 'rl-2': rl-20261122-1-b, rl-20261122-1-a; use more"),
        ("gam", "there is no run 'gam'; did you mean 'gan'?"),
        ("x", "there is no run 'x'; symphony history lists all runs"),
    ],
)
def test_an_unknown_or_ambiguous_run_is_reported(given: str, message: str) -> None:
    with pytest.raises(NotFound, match=message.replace("?", r"\?")):
        archive.find_run(RUNS, given)


def test_an_exact_run_is_not_completed() -> None:
    assert archive.find_run(RUNS, "gan-20").experiment == "gan"
    with pytest.raises(NotFound, match="there is no run 'gan-20'; did you mean 'gan-"):
        archive.find_run(RUNS, "gan-20", exact=True)


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), 4),
        (Retention(keep=0), 0),
        (Retention(keep=3), 3),
        (Retention(max_age_seconds=15), 2),
        (Retention(max_bytes=250), 2),
        (Retention(keep=3, max_age_seconds=15, max_bytes=99), 0),
    ],
)
def test_the_newest_runs_are_kept(retention: Retention, kept: int) -> None:
    runs = [make_run(str(at), launched=at, size=100) for at in (40, 30, 20, 10)]
    assert archive.outdated(runs, retention, now=45.0) == runs[kept:]


def test_a_second_record_with_the_same_identifier_gets_a_number(tmp_path: Path) -> None:
    paths = []
    for _ in range(3):
        source = tmp_path / "source"
        source.mkdir()
        paths.append(archive.add(source, tmp_path / "runs", "rl").name)
    assert paths == ["rl", "rl-2", "rl-3"]
    assert len(archive.find_archived(tmp_path / "runs")) == 3


def test_a_damaged_record_is_listed_and_reported(tmp_path: Path) -> None:
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl" / run_record.RECORD_FILE).write_text("{")
    (run,) = archive.find_archived(tmp_path)
    assert (run.name, run.launched, run.backend) == ("rl", 0.0, "")
    with pytest.raises(BackendError, match=r"record\.json is missing or damaged"):
        run.load_record()


def test_an_archive_of_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SpecError, match="other users may write"):
        archive.find_archived(tmp_path)


def test_the_result_is_that_of_the_experiment() -> None:
    processes = (
        ProcessStatus(name="a", state=State.SUCCEEDED, exit_code=0, ended=5.0),
        ProcessStatus(name="b", state=State.FAILED, exit_code=3, ended=7.0),
    )
    status = ExperimentStatus(name="rl", backend="local", processes=processes, created=4.0)
    # The clock of this machine is wrong.
    result = run_record.result_of(status, {"run": "r", "launched": 124.0}, 10)
    assert run_record.duration_of(result) == 3.0
    assert result == {
        "run": "r",
        "launched": 124.0,
        "state": "failed",
        "exit_code": 3,
        "ended": 7.0,
        "duration": 3.0,
        "processes": 2,
        "parameters": {},
        "bytes": 10,
        "cut": [],
    }


def test_differences_are_found_at_all_depths() -> None:
    first = {"code": "a", "definition": {"processes": {"w": {"args": [1]}}, "env": {}}}
    second = {"code": "b", "definition": {"processes": {"w": {"args": [2]}, "x": {}}, "env": {}}}
    assert find_differences(first, second) == {
        "code": ("a", "b"),
        "definition.processes.w.args": ([1], [2]),
        "definition.processes.x": (None, {}),
    }


def test_a_user_without_a_name_is_recorded_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: NAMELESS_USER)
    launched = run_record.launch_record(Experiment("rl"), "local", "rl-1", 0.0)
    assert launched["user"] == str(NAMELESS_USER)


def test_a_record_is_read_like_an_experiment(tmp_path: Path) -> None:
    now = 1_000_000.0
    processes = (
        ProcessStatus(name="a", state=State.SUCCEEDED, exit_code=0, started=1.0, ended=5.0),
        ProcessStatus(name="b", group="g", state=State.FAILED, stopped=True, ended=7.0),
        ProcessStatus(name="c", state=State.FAILED, reason_code=ReasonCode.EXITED, exit_code=3),
    )
    status = ExperimentStatus(name="rl", backend="kube", processes=processes, ends_with=("a",))
    details = ProcessDetails(
        status=processes[0], facts={"node": "n"}, events=(ProcessEvent(at=1.0, text="e"),)
    )
    services = [Service(name="s", owners=("a",), port=7000)]
    drawn = of_status(status, services=services, connects={"b": ["s"]})
    run_record.write_json(tmp_path / run_record.STATUS_FILE, status.to_dict())
    run_record.write_json(tmp_path / run_record.DETAILS_FILE, {"a": details.to_dict()})
    run_record.write_json(tmp_path / run_record.TOPOLOGY_FILE, drawn.to_dict())
    logs = tmp_path / run_record.LOG_DIRECTORY
    logs.mkdir()
    (logs / "a.log").write_bytes(b"one\nthree\n\nfive \xff")
    (logs / "a.when").write_text(f"{now} 4\ndamaged\n{now + 2} 11\n")
    (logs / "b.log").write_bytes(b"two\n")
    (logs / "b.when").write_text(f"{now + 1} 4\n")
    cluster = Cluster.new("local")
    run = Run(tmp_path, {"experiment": "rl", "backend": "kube"})
    vars(cluster)["implementation"] = RecordBackend(run)
    assert cluster.describe_experiment("rl") == status
    assert cluster.explain_process("rl", "a") == details
    assert cluster.explain_process("rl", "c") == ProcessDetails(status=processes[2])
    assert cluster.describe_topology("rl") == drawn
    lines = [f"{line.process}: {line.text}" for line in cluster.iter_logs("rl", ["a", "g/b"])]
    assert lines == ["a: one", "b: two", "a: three", "a: ", "a: five \ufffd"]
    since = datetime.fromtimestamp(now + 1.5, timezone.utc).isoformat()
    assert next(line.text for line in cluster.iter_logs("rl", since=since)) == "three"
    assert cluster.get_log("rl", "a", tail=2) == "\nfive \ufffd"
    assert cluster.get_log("rl", "c") == ""
    with pytest.raises(Unsupported, match="is a record, which can only be read"):
        cluster.delete("rl")
    (tmp_path / run_record.STATUS_FILE).write_text("{}")
    with pytest.raises(BackendError, match=r"status\.json is missing or damaged"):
        cluster.describe_experiment("rl")


# --- the state of the code ---


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    git(directory, "init", "--initial-branch=main")
    (directory / "train.py").write_text("lr = 1\n")
    git(directory, "add", ".")
    git(directory, "commit", "-m", "first")
    return directory


def capture(source: Path, target: Path) -> None:
    target.mkdir()
    with code_state.CodeCapture(source, target) as code:
        code.start()


def test_the_commit_and_the_changes_are_recorded(repository: Path, tmp_path: Path) -> None:
    capture(repository, tmp_path / "clean")
    assert code_state.code_words(tmp_path / "clean").endswith(" (main)")
    assert code_state.diff_digest(tmp_path / "clean") is None
    (repository / "train.py").write_text("lr = 2\n")
    subdirectory = repository / "sub"
    subdirectory.mkdir()
    capture(subdirectory, tmp_path / "changed")
    assert code_state.code_words(tmp_path / "changed").endswith("+ (main)")
    assert "+lr = 2" in (tmp_path / "changed" / code_state.DIFF_FILE).read_text()


def test_code_outside_a_repository_is_not_recorded(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    source.mkdir()
    capture(source, tmp_path / "record")
    assert os.listdir(tmp_path / "record") == []


def test_a_launch_does_not_wait_for_a_slow_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    slow = programs / "git"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(code_state, "TIMEOUT_SECONDS", 0.01)
    capture(repository, tmp_path / "record")
    assert code_state.code_words(tmp_path / "record") == ""
