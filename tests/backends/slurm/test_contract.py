"""The behaviour contract on a real Slurm."""

import contextlib
import subprocess

import pytest

from symphony.testing import BackendContract


class TestContract(BackendContract):
    backend = "slurm"

    @pytest.fixture
    def options(self, tmp_path):
        # Some tests add processes, for which the job needs room.
        room = ["--cpus-per-task=4"]
        return {"state_dir": str(tmp_path / "state"), "nodes": 1, "sbatch": room}

    @contextlib.contextmanager
    def foreign(self, cluster):
        """A job of another program that has the name of the experiment's job."""
        submit = ["sbatch", "--parsable", "--job-name=symphony:contract", "--output=/dev/null"]
        done = subprocess.run(
            [*submit, "--wrap", "sleep 100"], capture_output=True, text=True, check=True
        )
        job = done.stdout.strip()
        try:
            yield lambda: _state(job) in ("PENDING", "RUNNING")
        finally:
            subprocess.run(["scancel", job], check=True)


def _state(job):
    done = subprocess.run(
        ["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
