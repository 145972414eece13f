"""Damaged run directories: each file, with each kind of damage, read by each method.

A method that needs a damaged file names the file in one line, and deletion always works.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony import BackendError, NotFound, State, SymphonyError
from symphony.supervised.cluster import HostCluster
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import encode
from symphony.supervised.user_requests.stop import find_supervisor
from symphony_local.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("permissions_apply_to_root")

NAME, OTHER = "exp", "other"

# --- the run directories ---


def manifest_data(name: str, run_id: str, cwd: Path) -> dict[str, Any]:
    spec = ProcessSpec(name="p", argv=("sleep", "1000"), cwd=str(cwd), grace=5.0, releases=(7001,))
    return {
        "experiment": name,
        "backend": "local",
        "run_id": run_id,
        "services": {"web": "127.0.0.1:7001"},
        "exposed": ["web"],
        "secrets": {},
        "env": {},
        "processes": [spec.to_dict()],
        "ignored": [],
    }


def make_run(root: Path, name: str, *, finished: bool) -> RunDirectory:
    """Create the run directory of an experiment that has finished or has lost its supervisor."""
    run = RunDirectory(root / name)
    run_id = os.urandom(16).hex()
    run.logs.mkdir(parents=True)
    run.secrets.mkdir()
    run.record_run_id(run_id)
    run.record_supervisor(ProcessId(os.getpid(), 0.0))
    run.manifest.write_text(json.dumps(manifest_data(name, run_id, root)))
    events: list[dict[str, Any]] = [
        {"event": "launched", "at": 1.0},
        {"event": "started", "at": 2.0, "process": "p", "pid": 1, "birth": 0.0, "ready": True},
    ]
    if finished:
        events.append({"event": "exited", "at": 3.0, "process": "p", "code": 0})
        events.append({"event": "finished", "at": 4.0})
    run.events.write_bytes(b"".join(map(encode, events)))
    run.supervisor_log.touch()
    run.log("p").write_text("one\ntwo\n")
    run.log_times("p").write_text("2.5 4\n3.5 8\n")
    return run


@pytest.fixture
def cluster(tmp_path: Path) -> HostCluster:
    cluster = LocalCluster(state_dir=tmp_path / "state")
    make_run(cluster._root, OTHER, finished=True)
    return cluster


@pytest.fixture
def orphaned(cluster: HostCluster) -> Iterator[tuple[RunDirectory, subprocess.Popen[bytes]]]:
    """A run whose supervisor was killed, and its process."""
    run = make_run(cluster._root, NAME, finished=False)
    env = {**os.environ, "SYMPHONY_RUN": run.load_manifest()["run_id"]}
    process = subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True)
    yield run, process
    process.kill()
    process.wait()


# --- the kinds of damage ---


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    clear(path)


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def make_directory(path: Path) -> None:
    clear(path)
    path.mkdir()
    (path / "inside").touch()


def make_link_loop(path: Path) -> None:
    """Make reading fail with an error that also affects root."""
    clear(path)
    path.symlink_to(path.name)


def make_unreadable(path: Path) -> None:
    path.chmod(0)


def content(data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        clear(path)
        path.write_bytes(data)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": remove,
    "empty": content(b""),
    "truncated": truncate,
    "binary": content(bytes(range(256)) * 20),
    "text": content(b"not a record\n"),
    "number": content(b"42\n"),
    "null": content(b"null\n"),
    "list": content(b"[[1]]\n"),
    "object": content(b'{"run_id": 1, "processes": 3, "event": "started", "pid": "x"}\n'),
    "nested": content(b"[" * 100_000 + b"\n"),
    "directory": make_directory,
    "link loop": make_link_loop,
    "unreadable": make_unreadable,
}
RECORDS = ("manifest.json", "events.jsonl", "supervisor.json", "lock")
FILES = (*RECORDS, "logs/p.log", "logs/p.when")
DIRECTORIES = ("logs", "secrets")

READERS: dict[str, Callable[[HostCluster], object]] = {
    "describe": lambda cluster: cluster.describe_experiment(NAME),
    "explain": lambda cluster: cluster.explain_process(NAME, "p"),
    "topology": lambda cluster: cluster.describe_topology(NAME),
    "wait": lambda cluster: cluster.wait(NAME, timeout=0),
    "log": lambda cluster: cluster.get_log(NAME, "p", since=3.0),
    "logs": lambda cluster: list(cluster.iter_logs(NAME)),
    "follow": lambda cluster: list(cluster.iter_logs(NAME, follow=True)),
    "exec": lambda cluster: cluster.exec_command(NAME, "p", "true"),
    "url": lambda cluster: cluster.external_url(NAME, "web"),
    "copy": lambda cluster: cluster.transfer_file(NAME, "p:x", "y", dry_run=True),
    "launch": lambda cluster: cluster.implementation.deletion.free_name(NAME),
}
# The errors for an undamaged experiment that has finished.
USUAL_ERRORS = {"copy": NotFound}


def error_of(reader: str, cluster: HostCluster) -> SymphonyError | None:
    """Return symphony's error, or None if there is no error."""
    try:
        READERS[reader](cluster)
    except SymphonyError as exc:
        return exc
    return None


def test_readers_of_an_undamaged_experiment(cluster: HostCluster) -> None:
    make_run(cluster._root, NAME, finished=True)
    errors = {reader: error_of(reader, cluster) for reader in READERS}
    found = {reader: type(error) for reader, error in errors.items() if error is not None}
    assert found == USUAL_ERRORS
    assert cluster.list_experiments() == [OTHER], "the name is free"


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *[(file, damage) for file in FILES for damage in DAMAGES],
        *[(file, damage) for file in DIRECTORIES for damage in ("missing", "text", "link loop")],
    ],
)
def test_damaged_file_is_reported_in_one_line(cluster: HostCluster, file: str, damage: str) -> None:
    run = make_run(cluster._root, NAME, finished=True)
    DAMAGES[damage](run.path / file)
    for reader in READERS:
        error = error_of(reader, cluster)
        if file == "manifest.json" or type(error) is not USUAL_ERRORS.get(reader, type(None)):
            assert isinstance(error, BackendError), (reader, error)
            assert str(run.path / file) in str(error)
            assert "\n" not in str(error)
    assert OTHER in cluster.list_experiments()
    assert cluster.describe_experiment(OTHER).processes[0].state is State.SUCCEEDED


@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_status_without_events_names_the_event_log(cluster: HostCluster, damage: str) -> None:
    run = make_run(cluster._root, NAME, finished=True)
    DAMAGES[damage](run.events)
    status = cluster.describe_experiment(NAME)
    assert status.processes[0].state is State.UNKNOWN
    assert f"{run.events} contains no events" in status.note


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *[
            (file, damage)
            for file in RECORDS
            for damage in ("missing", "empty", "binary", "object", "directory", "link loop")
        ],
        (".", "unreadable"),
        ("manifest.json", "unreadable"),
        ("logs", "text"),
        ("secrets", "link loop"),
    ],
)
def test_damaged_experiment_can_be_deleted(
    cluster: HostCluster,
    orphaned: tuple[RunDirectory, subprocess.Popen[bytes]],
    file: str,
    damage: str,
) -> None:
    run, process = orphaned
    DAMAGES[damage](run.path / file)
    assert NAME in cluster.list_experiments()
    cluster.delete(NAME)
    assert process.wait(0) == -signal.SIGTERM
    assert [name for name in os.listdir(cluster._root) if not name.startswith(".")] == [OTHER]


# --- values of a wrong type ---

WRONG_VALUES: tuple[Any, ...] = (None, True, -1, 0.5, "", "x/y", [], [None], {}, {"a": None})


def with_wrong_values(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield copies of a JSON object, each with one value replaced or removed."""
    for key in data:
        yield {other: value for other, value in data.items() if other != key}
        for value in WRONG_VALUES:
            yield {**data, key: value}


def assert_readers_raise_only_our_errors(cluster: HostCluster, what: object) -> None:
    for reader in ("describe", "explain", "topology", "logs", "exec", "url", "copy"):
        try:
            error_of(reader, cluster)
        except Exception as exc:
            raise AssertionError(f"{reader} with {what}") from exc


def test_wrong_values_in_the_manifest(cluster: HostCluster) -> None:
    run = make_run(cluster._root, NAME, finished=True)
    data = run.load_manifest()
    (process,) = data["processes"]
    damaged = list(with_wrong_values(data))
    damaged += [{**data, "processes": [wrong]} for wrong in with_wrong_values(process)]
    for wrong in damaged:
        run.manifest.write_text(json.dumps(wrong))
        assert_readers_raise_only_our_errors(cluster, wrong)


def test_wrong_values_in_the_events(cluster: HostCluster) -> None:
    run = make_run(cluster._root, NAME, finished=True)
    lines = run.events.read_bytes().splitlines(keepends=True)
    # While the run is locked, readers do not search for the processes of a killed supervisor.
    lock = os.open(run.lock, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for index, line in enumerate(lines):
        for wrong in with_wrong_values(json.loads(line)):
            run.events.write_bytes(b"".join([*lines[:index], encode(wrong), lines[-1]]))
            assert_readers_raise_only_our_errors(cluster, wrong)
    os.close(lock)


def test_wrong_values_in_the_record_of_the_supervisor(cluster: HostCluster) -> None:
    run = make_run(cluster._root, NAME, finished=True)
    record = run.path / "supervisor.json"
    for wrong in with_wrong_values(json.loads(record.read_text())):
        record.write_text(json.dumps(wrong))
        assert_readers_raise_only_our_errors(cluster, wrong)
        run.supervisor()


@pytest.mark.parametrize("package", ["supervised", "host"])
def test_supervisor_without_a_record_is_found_by_its_program(tmp_path: Path, package: str) -> None:
    """In earlier versions, the package had another name."""
    run = make_run(tmp_path, NAME, finished=False)
    truncate(run.path / "supervisor.json")
    program = tmp_path / "symphony" / package / "supervisor" / "__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text(
        "import fcntl, sys\n"
        "lock = open(sys.argv[1])\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-I", "-S", str(program), str(run.lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        found = find_supervisor(run)
        assert found is not None
        assert found.pid == process.pid
