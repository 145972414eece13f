"""The status of an experiment whose job has failed."""

import json

import pytest

from symphony.host.run.directory import REMOTE_FILE, RunDirectory
from symphony.host.run.note import NOTE_BYTES, NoteWriter
from symphony_slurm.run_files import FAILURE_FILE
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
