"""Processes that run from a copy of their code."""

import subprocess
import sys

import pytest

from symphony import Cluster, Experiment, SpecError
from symphony.archive.code_archives import archive_path, read_snapshots
from symphony.testing import programs

MAIN = "import pathlib\nprint(pathlib.Path('text').read_text(), flush=True)\n" + programs.FOREVER


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "text").write_text("first")
    (directory / "main.py").write_text(MAIN)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]
    for command in (["git", "init", "-q"], ["git", "add", "."], commit):
        subprocess.run(command, cwd=directory, check=True)
    return directory


def described(project):
    experiment = Experiment("copied", code=project)
    experiment.base_dir = project
    process = experiment.new_process("p", command=[sys.executable, "-u", "main.py"])
    process.ready(log="^up")
    return experiment


def lines(cluster):
    return [line for line in cluster.get_log("copied", "p").splitlines() if line != "up"]


def test_edits_reach_processes_with_a_copy_only_by_up(project, tmp_path):
    options = {"state_dir": tmp_path / "state"}
    cluster = Cluster.new("local", snapshot=True, **options)
    try:
        cluster.launch(described(project))
        cluster.wait("copied", until="ready", timeout=60)
        (project / "text").write_text("second")
        cluster.restart_processes("copied", ["p"])
        cluster.wait("copied", until="ready", timeout=60)
        assert lines(cluster) == ["first", "first"]
        # A change keeps the copies, also if the program that makes it does not set the option.
        changed = Cluster.new("local", **options).up(described(project))
        assert [change.setting for change in changed.processes[0].settings] == ["code"]
        cluster.wait("copied", until="ready", timeout=60)
        (project / "text").unlink()
        cluster.restart_processes("copied", ["p"])
        cluster.wait("copied", until="ready", timeout=60)
        assert lines(cluster) == ["first", "first", "second", "second"]
    finally:
        cluster.delete("copied")
    (run,) = [run for run in cluster.list_runs() if run.path.is_relative_to(tmp_path)]
    # The record has the uncommitted changes at the time of the latest change of the code.
    assert "+second" in (run.path / "code.diff").read_text()
    snapshot = read_snapshots(run.path)["p"]
    assert archive_path(run.path, snapshot).stat().st_size == snapshot.packed_size
    assert len(list((run.path / "code").glob("*.tar.gz"))) == 2


def test_a_missing_program_in_the_code_is_reported_before_the_launch(project, tmp_path):
    cluster = Cluster.new("local", snapshot=True, state_dir=tmp_path / "state")
    experiment = described(project)
    experiment.get_process("p").command = ["./missing"]
    with pytest.raises(SpecError, match=r"'p': there is no .*/project/missing"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
