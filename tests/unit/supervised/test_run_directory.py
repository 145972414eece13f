"""Run directories: staging, claiming a name, cleaning up, and finding the supervisor."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from symphony.errors import BackendError
from symphony.supervised.processes.identity import ProcessId, boot_id, identify
from symphony.supervised.processes.tree import find_users_of_file
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.support.directories.state_home import state_root

MANIFEST = json.dumps(
    {
        "experiment": "e",
        "backend": "local",
        "run_id": "r",
        "services": {},
        "exposed": [],
        "env": {},
        "processes": [],
    }
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make_run(root: Path, name: str) -> tuple[RunDirectory, int]:
    """Return a complete run directory, and the descriptor that keeps its lock."""
    with directory.staging_directory(root, name) as (run, lock):
        run.manifest.write_text(MANIFEST)
        kept = os.dup(lock)
        return run.claim(root / name), kept


def names_in(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if name != ".lock")


def test_staging_directory_is_private_and_locked(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    with directory.staging_directory(root, "e") as (run, lock):
        assert mode(root) == mode(run.path) == mode(run.logs) == 0o700
        assert run.is_locked()
        assert os.get_inheritable(lock) is False
        assert directory.find_all(root) == []
    assert names_in(root) == [], "no process has inherited the lock"
    with pytest.raises(RuntimeError), directory.staging_directory(root, "e"):
        raise RuntimeError
    assert names_in(root) == []


def test_claimed_directory_is_complete_and_locked(tmp_path: Path) -> None:
    run, kept = make_run(tmp_path, "e")
    assert (run.name, names_in(tmp_path)) == ("e", ["e"])
    assert run.load_manifest() == json.loads(MANIFEST)
    assert run.is_locked()
    os.close(kept)
    assert not run.is_locked()


def test_claimed_name_cannot_be_claimed_again(tmp_path: Path) -> None:
    first, kept = make_run(tmp_path, "e")
    (first.path / "mine").touch()
    with directory.staging_directory(tmp_path, "e") as (second, _), pytest.raises(FileExistsError):
        second.claim(tmp_path / "e")
    assert names_in(tmp_path) == ["e"]
    assert (first.path / "mine").exists()
    os.close(kept)


def test_launch_waits_for_another_launch_of_its_name(tmp_path: Path) -> None:
    is_waiting, order = threading.Event(), list[str]()

    def stage() -> None:
        is_waiting.set()
        with directory.staging_directory(tmp_path, "e"):
            order.append("second")

    with directory.staging_directory(tmp_path, "e") as (run, lock):
        second = threading.Thread(target=stage)
        second.start()
        is_waiting.wait()
        with directory.staging_directory(tmp_path, "other"):
            order.append("other")
        order.append("first")
        kept = os.dup(lock)
        run.claim(tmp_path / "e")
        # The claimed directory has a new name, so the second launch continues.
        second.join()
    assert order == ["other", "first", "second"]
    assert names_in(tmp_path) == ["e"]
    os.close(kept)


def test_launch_does_not_wait_for_a_suspended_launch(tmp_path: Path) -> None:
    holder = "import sys, time; lock = open(sys.argv[1]); time.sleep(1000)"
    with directory.staging_directory(tmp_path, "e") as (run, _):
        other = subprocess.Popen([sys.executable, "-c", holder, str(run.lock)])
        try:
            while not any(user.pid == other.pid for user, _ in find_users_of_file(run.lock)):
                assert other.poll() is None
            other.send_signal(signal.SIGSTOP)
            message = rf"another launch of 'e' \(pid {other.pid}\) is suspended .*kill -CONT"
            with (
                pytest.raises(BackendError, match=message),
                directory.staging_directory(tmp_path, "e"),
            ):
                pass
        finally:
            other.kill()
            other.wait()


def test_next_launch_removes_remains_of_killed_launches(tmp_path: Path) -> None:
    for name in (".new-stale", ".old-trash", "e", ".other"):
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / ".new-unlocked").mkdir()
    (tmp_path / ".new-unlocked" / "lock").touch()
    with (
        directory.staging_directory(tmp_path, "held") as (held, _),
        directory.staging_directory(tmp_path, "stale") as (run, _),
    ):
        assert names_in(tmp_path) == sorted([held.name, run.name, "e", ".other"])


def test_launch_that_claims_its_name_at_this_moment_is_no_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory gets its final name between the check of its lock and its removal."""
    kept: list[int] = []
    is_locked = RunDirectory.is_locked

    def claim_first(run: RunDirectory) -> bool:
        if run.name == ".new-e":
            monkeypatch.undo()
            run.claim(tmp_path / "e")
        return is_locked(run)

    with directory.staging_directory(tmp_path, "e") as (_, lock):
        kept.append(os.dup(lock))
        monkeypatch.setattr(RunDirectory, "is_locked", claim_first)
        with directory.staging_directory(tmp_path, "other") as (other, _):
            assert names_in(tmp_path) == [other.name, "e"]
    assert names_in(tmp_path) == ["e"]
    os.close(kept[0])


def test_remove_is_idempotent(tmp_path: Path) -> None:
    run, kept = make_run(tmp_path, "e")
    os.close(kept)
    for _ in range(2):
        run.remove()
        assert names_in(tmp_path) == []


# --- finding directories ---


@pytest.mark.parametrize("count", [0, 3, 1000])
def test_scratch_files_of_any_number_of_processes_are_removed(tmp_path: Path, count: int) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    run = RunDirectory(tmp_path / "e")
    scratch = run.path / "scratch"
    scratch.mkdir(parents=True)
    for number in range(count):
        (scratch / f"p-{number}").mkdir()
    if count:
        (scratch / "p-0" / "link").symlink_to(outside)
        (scratch / "p-1" / "file").touch()
        (scratch / "p-1" / "read-only").mkdir()
        (scratch / "p-1" / "read-only" / "file").touch()
        (scratch / "p-1" / "read-only").chmod(0o500)
        # A removal that was killed has left this directory.
        (scratch / ".removed-0" / "p-9").mkdir(parents=True)
    run.remove_scratch_files()
    assert names_in(run.path) == []
    assert names_in(outside) == ["kept"]


def test_directories_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "directory").mkdir()
    kept = [make_run(tmp_path, name)[1] for name in ("b", "a")]
    assert [run.name for run in directory.find_all(tmp_path)] == ["a", "b"]
    assert directory.find(tmp_path, "a") == RunDirectory(tmp_path / "a")
    assert directory.find(tmp_path, "c") is None
    assert directory.find(tmp_path, ".lock") is None
    assert directory.find_all(tmp_path / "none") == []
    for descriptor in kept:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["", "e/logs", "e/../e", "e/../../other/f", "/"])
def test_path_is_not_a_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    for path in (root / "e" / "logs", tmp_path / "other" / "f"):
        path.mkdir(parents=True)
        (path / "lock").touch()
    assert directory.find(root, name) is None


def test_state_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "s"))
    assert state_root("local") == tmp_path / "s" / "local"
    monkeypatch.delenv("SYMPHONY_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    assert state_root("local") == tmp_path / "x" / "symphony" / "local"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_root("local") == tmp_path / ".local" / "state" / "symphony" / "local"


# --- the supervisor ---


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def own_identity() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def take_lock(run: RunDirectory) -> int:
    descriptor = os.open(run.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_supervisor_must_run_and_hold_the_lock(run: RunDirectory) -> None:
    assert run.supervisor() is None
    run.record_supervisor(own_identity())
    assert run.supervisor() is None, "it does not hold the lock"
    lock = take_lock(run)
    assert run.supervisor() == own_identity()
    run.record_supervisor(ProcessId(os.getpid(), own_identity().birth + 1))
    assert run.supervisor() is None, "another process has its pid"
    os.close(lock)


def test_supervisor_of_another_boot_or_host(run: RunDirectory) -> None:
    record_file = run.path / "supervisor.json"
    assert run.other_host() is None
    run.record_supervisor(own_identity())
    assert run.other_host() is None
    record = json.loads(record_file.read_text())
    assert record["boot"] == boot_id()
    record_file.write_text(json.dumps({**record, "boot": "another"}))
    assert run.other_host() is None, "an earlier boot of this host"
    lock = take_lock(run)
    assert run.supervisor() is None
    os.close(lock)
    record_file.write_text(json.dumps({**record, "boot": "another", "host": "node-7"}))
    assert run.other_host() == "node-7"
    record_file.write_text("{")
    assert run.other_host() is None


def test_run_of_another_user_can_be_controlled_only_by_root(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.check_user()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BackendError, match="belongs to user .*; run the command as this user"):
        run.check_user()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    run.check_user()


def test_checking_the_lock_does_not_take_it(run: RunDirectory) -> None:
    assert not run.is_locked()
    os.close(take_lock(run))
    assert not run.is_locked()
    lock = take_lock(run)
    assert run.is_locked()
    assert run.is_locked()
    os.close(lock)
