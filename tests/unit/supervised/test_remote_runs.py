"""Run directories whose files are written by other machines."""

import json
import threading
import time

import pytest

from symphony.errors import BackendError
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.run_paths import REMOTE_FILE

MANIFEST = {
    "experiment": "rl",
    "backend": "slurm",
    "run_id": "0123",
    "services": {},
    "exposed": [],
    "env": {},
    "processes": [],
}


@pytest.fixture
def run(tmp_path):
    """A run directory with a path of its own, and a link with the name of the experiment."""
    tmp_path.chmod(0o700)
    path = tmp_path / ".jobs" / "rl.0123"
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps(MANIFEST))
    (path / REMOTE_FILE).touch()
    (tmp_path / "rl").symlink_to(path.relative_to(tmp_path))
    return RunDirectory(tmp_path / "rl")


def test_removal_removes_the_link_and_the_directory(run, tmp_path):
    assert [found.name for found in directory.find_all(tmp_path)] == ["rl"]
    with run.pin() as pinned:
        pinned.remove()
    assert not (tmp_path / "rl").is_symlink()
    assert list((tmp_path / ".jobs").iterdir()) == []


def test_archive_contains_the_directory_and_not_the_link(run, tmp_path):
    with run.pin() as pinned:
        archived = pinned.archive(tmp_path / ".runs", "rl-1")
    assert archived == tmp_path / ".runs" / "rl-1"
    assert not archived.is_symlink()
    assert (archived / "manifest.json").exists()
    assert not (tmp_path / "rl").is_symlink()


def test_truncated_manifest_is_read_again(run):
    text = run.manifest.read_text()
    run.manifest.write_text(text[:20])
    thread = threading.Timer(0.3, lambda: run.manifest.write_text(text))
    thread.start()
    assert run.load_manifest() == MANIFEST
    thread.join()


def test_manifest_that_stays_damaged_is_reported(run, monkeypatch):
    monkeypatch.setattr(directory, "REMOTE_PATIENCE_SECONDS", 0.2)
    run.manifest.write_text("{")
    begun = time.monotonic()
    with pytest.raises(BackendError, match="is damaged"):
        run.load_manifest()
    assert time.monotonic() - begun >= 0.2
    (run.path / REMOTE_FILE).unlink()
    with pytest.raises(BackendError, match="is damaged"):
        run.load_manifest()
