"""Run directories: made aside, named in one step, swept when nobody keeps them, found by name alone."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from symphony.host.processes.identity import ProcessId, boot_id, identify
from symphony.host.run import directory
from symphony.host.run.directory import RunDirectory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def named(root: Path, name: str) -> tuple[RunDirectory, int]:
    """A directory that was made aside and took its name, and the descriptor that keeps its lock."""
    with directory.staging_directory(root) as (run, lock):
        run.manifest.write_text('{"run_id": "r", "processes": []}')
        kept = os.dup(lock)
        return run.claim(root / name), kept


def visible(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if name != ".lock")


def test_a_directory_is_private_and_has_a_lock_and_a_place_for_logs(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    with directory.staging_directory(root) as (run, lock):
        assert mode(root) == mode(run.path) == mode(run.logs) == 0o700
        assert run.is_locked()
        assert os.get_inheritable(lock) is False
        assert directory.find_all(root) == []


def test_one_that_nobody_keeps_is_removed(tmp_path: Path) -> None:
    with directory.staging_directory(tmp_path) as (run, _):
        run.manifest.write_text('{"run_id": "r", "processes": []}')
    assert visible(tmp_path) == []


def test_one_that_fails_half_way_is_removed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), directory.staging_directory(tmp_path):
        raise RuntimeError
    assert visible(tmp_path) == []


def test_one_that_is_kept_has_its_name_and_everything_in_it(tmp_path: Path) -> None:
    run, kept = named(tmp_path, "e")
    assert (run.name, visible(tmp_path)) == ("e", ["e"])
    assert run.load_manifest() == {"run_id": "r", "processes": []}
    assert run.is_locked()
    os.close(kept)
    assert not run.is_locked()


def test_of_two_claims_of_one_name_one_wins(tmp_path: Path) -> None:
    first, kept = named(tmp_path, "e")
    (first.path / "mine").touch()
    with directory.staging_directory(tmp_path) as (second, _), pytest.raises(FileExistsError):
        second.claim(tmp_path / "e")
    assert visible(tmp_path) == ["e"]
    assert (first.path / "mine").exists()
    os.close(kept)


def test_of_many_claims_at_once_one_wins(tmp_path: Path) -> None:
    count = 8
    ready, outcomes, kept = threading.Barrier(count), list[str](), list[int]()

    def claim() -> None:
        with directory.staging_directory(tmp_path) as (run, lock):
            ready.wait()
            try:
                run.claim(tmp_path / "e")
            except FileExistsError:
                outcomes.append("lost")
            else:
                outcomes.append("won")
                kept.append(os.dup(lock))

    threads = [threading.Thread(target=claim) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * (count - 1) + ["won"]
    assert visible(tmp_path) == ["e"]
    os.close(kept[0])


def test_the_next_launch_sweeps_what_killed_ones_left_and_nothing_else(tmp_path: Path) -> None:
    for name in (".new-stale", ".old-trash", "e", ".other"):
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / ".new-unlocked").mkdir()
    (tmp_path / ".new-unlocked" / "lock").touch()
    with (
        directory.staging_directory(tmp_path) as (held, _),
        directory.staging_directory(tmp_path) as (run, _),
    ):
        assert visible(tmp_path) == sorted([held.name, run.name, "e", ".other"])


def test_removing_takes_the_name_away_and_all_below_it(tmp_path: Path) -> None:
    run, kept = named(tmp_path, "e")
    os.close(kept)
    run.remove()
    assert visible(tmp_path) == []
    run.remove()


# --- finding ---


def test_directories_are_found_by_name(tmp_path: Path) -> None:
    kept = [named(tmp_path, name)[1] for name in ("b", "a")]
    assert [run.name for run in directory.find_all(tmp_path)] == ["a", "b"]
    found = directory.find(tmp_path, "a")
    assert found == RunDirectory(tmp_path / "a")
    assert directory.find(tmp_path, "c") is None
    assert directory.find(tmp_path, ".lock") is None
    assert directory.find_all(tmp_path / "none") == []
    for descriptor in kept:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["", "e/logs", "e/../e", "e/../../other/f", "/"])
def test_a_path_is_no_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    for folder in (root / "e" / "logs", tmp_path / "other" / "f"):
        folder.mkdir(parents=True)
    assert directory.find(root, name) is None


def test_what_symphony_did_not_make_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder").mkdir()
    assert directory.find_all(tmp_path) == []


# --- where they are ---


def test_where_run_directories_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "s"))
    assert directory.state_root("local") == tmp_path / "s" / "local"
    monkeypatch.delenv("SYMPHONY_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    assert directory.state_root("local") == tmp_path / "x" / "symphony" / "local"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory.state_root("local") == tmp_path / ".local" / "state" / "symphony" / "local"


# --- who supervises ---


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def lock(run: RunDirectory) -> int:
    import fcntl

    descriptor = os.open(run.path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_supervisor_is_known_while_it_lives_and_holds_the_lock(run: RunDirectory) -> None:
    assert run.supervisor() is None
    run.record_supervisor(me())
    assert run.supervisor() is None, "it holds no lock"
    held = lock(run)
    assert run.supervisor() == me()
    run.record_supervisor(ProcessId(os.getpid(), me().birth + 1))
    assert run.supervisor() is None, "another process has its id now"
    os.close(held)


def test_what_another_machine_or_boot_runs(run: RunDirectory) -> None:
    assert run.other_host() is None
    run.record_supervisor(me())
    assert run.other_host() is None
    record = json.loads((run.path / "supervisor.json").read_text())
    (run.path / "supervisor.json").write_text(json.dumps({**record, "boot": "another"}))
    assert run.other_host() is None, "this host, before it was booted"
    held = lock(run)
    assert run.supervisor() is None
    os.close(held)
    (run.path / "supervisor.json").write_text(
        json.dumps({**record, "boot": "another", "host": "node-7"})
    )
    assert run.other_host() == "node-7"
    (run.path / "supervisor.json").write_text("{")
    assert run.other_host() is None
    assert boot_id() == record["boot"]


def test_looking_at_a_lock_does_not_take_it(run: RunDirectory) -> None:
    assert not run.is_locked()
    os.close(lock(run))
    assert not run.is_locked()
    held = lock(run)
    assert run.is_locked()
    assert run.is_locked()
    os.close(held)
