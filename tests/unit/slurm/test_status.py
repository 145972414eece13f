"""The status of an experiment whose job has failed."""

import json

import pytest

from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NOTE_BYTES, NoteWriter
from symphony.supervised.record.run_paths import REMOTE_FILE
from symphony_slurm import slurm, status
from symphony_slurm.run_files import FAILURE_FILE, JOB_FILE
from symphony_slurm.status import SlurmStatusReader

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
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    (tmp_path / REMOTE_FILE).touch()
    (tmp_path / "note").write_bytes(b" " * NOTE_BYTES)
    return RunDirectory(tmp_path)


@pytest.mark.parametrize("is_full", [False, True])
def test_reason_of_a_failure_is_in_the_note_if_the_disk_was_full(run, is_full):
    message = "node n1: cannot write to /runs: No space left on device"
    if is_full:
        run.file(FAILURE_FILE).touch()
        NoteWriter(run).set("job", message)
    else:
        run.file(FAILURE_FILE).write_text(message)
    assert SlurmStatusReader(run).read().note == message


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("FAILED", "job 5 has ended (failed), because n1 cannot use "),
        ("CANCELLED", "job 5 has ended (cancelled) before the experiment had finished"),
    ],
)
def test_reason_of_a_job_that_has_not_started_its_supervisor(run, monkeypatch, state, reason):
    monkeypatch.setattr(status, "PATIENCE_SECONDS", 0.0)
    run.file(JOB_FILE).write_text("5")
    job = slurm.Job(number="5", state=state, reason="", start="", nodes="n1", name="", comment="")
    monkeypatch.setattr(slurm, "find_job", lambda number: job)
    assert SlurmStatusReader(run).read().note.startswith(reason)
