"""Saving launches: the files, the refusal of saved names, and cleaning up after errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import (
    AlreadyExists,
    BackendError,
    Cluster,
    Experiment,
    LaunchFailed,
    SpecError,
    SymphonyConfig,
)
from symphony.cluster import save_experiment
from tests.unit.config_environment import ConfigEnvironment, environment

__all__ = ["environment"]


@pytest.fixture
def cluster(environment: ConfigEnvironment) -> Iterator[Cluster]:
    cluster = Cluster.new("local")
    yield cluster
    cluster.delete_batch(cluster.list_experiments())


@pytest.fixture
def runs(environment: ConfigEnvironment) -> Path:
    SymphonyConfig().set_experiment_folder("runs")
    return environment.work / "runs"


def experiment_with(cluster: Cluster, message: str = "hello") -> Experiment:
    experiment = cluster.new_experiment("rl")
    experiment.new_process("a", command=["echo", message]).binds("s")
    return experiment


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_launch_is_saved(cluster: Cluster, runs: Path) -> None:
    experiment = experiment_with(cluster)
    experiment.base_dir = runs.parent
    manifest = cluster.launch(experiment)
    saved = contents(runs)
    assert sorted(saved) == ["rl/experiment.yml", "rl/manifest.yml"]
    assert saved["rl/manifest.yml"] == str(manifest)
    first_line = saved["rl/experiment.yml"].splitlines()[0]
    assert first_line.startswith("# Launched on local at ")
    assert first_line.endswith(f"Relative paths are relative to {runs.parent}")
    loaded = Experiment.load_file(runs / "rl" / "experiment.yml")
    assert loaded.dump_dict() == experiment.dump_dict()
    assert [path.name for path in runs.iterdir()] == ["rl"], "no temporary files are left"


def test_nothing_is_saved_by_default(cluster: Cluster, environment: ConfigEnvironment) -> None:
    cluster.launch(experiment_with(cluster))
    assert list(environment.work.iterdir()) == []


def test_a_dry_run_saves_nothing(
    cluster: Cluster, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.launch(experiment_with(cluster), dry_run=True)
    assert "echo hello" in capsys.readouterr().out
    assert not runs.exists()


def test_a_saved_name_is_refused(cluster: Cluster, runs: Path) -> None:
    cluster.launch(experiment_with(cluster))
    cluster.delete("rl")
    before = contents(runs)
    message = rf"^experiment 'rl' is saved in {runs}/rl already; launch with force to replace it"
    with pytest.raises(AlreadyExists, match=message):
        cluster.launch(experiment_with(cluster, "again"))
    assert (contents(runs), cluster.list_experiments()) == (before, [])


def test_force_replaces_the_saved_files_and_keeps_others(cluster: Cluster, runs: Path) -> None:
    cluster.launch(experiment_with(cluster))
    (runs / "rl" / "model.pt").write_text("model")
    manifest = cluster.launch(experiment_with(cluster, "again"), force=True)
    saved = contents(runs)
    assert sorted(saved) == ["rl/experiment.yml", "rl/manifest.yml", "rl/model.pt"]
    assert "again" in saved["rl/experiment.yml"]
    assert (saved["rl/manifest.yml"], saved["rl/model.pt"]) == (str(manifest), "model")


@pytest.mark.parametrize("force", [False, True])
def test_a_failed_launch_changes_no_file(cluster: Cluster, runs: Path, force: bool) -> None:
    if force:
        cluster.launch(experiment_with(cluster))
    before = contents(runs)
    wrong = cluster.new_experiment("rl")
    wrong.new_process("a", command="no-such-program")
    with pytest.raises((LaunchFailed, SpecError)):
        cluster.launch(wrong, force=force)
    assert contents(runs) == before
    assert [path.name for path in runs.iterdir()] == (["rl"] if force else [])


def test_nothing_is_launched_if_the_directory_cannot_be_created(
    cluster: Cluster, runs: Path
) -> None:
    runs.write_text("a file")
    message = rf"'rl' cannot be saved in {runs}: {runs}: File exists; see experiment_folder"
    with pytest.raises(BackendError, match=message):
        cluster.launch(experiment_with(cluster))
    assert cluster.list_experiments() == []


def test_a_launch_that_cannot_be_saved_is_deleted(
    cluster: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another program creates the directory after the check.
    (runs / "rl").mkdir(parents=True)
    (runs / "rl" / "other").write_text("")
    monkeypatch.setattr(save_experiment.os.path, "lexists", lambda _: False)
    with pytest.raises(BackendError, match="cannot be saved in"):
        cluster.launch(experiment_with(cluster))
    assert cluster.list_experiments() == []
    assert contents(runs) == {"rl/other": ""}


def test_both_files_are_restored_if_one_cannot_be_replaced(
    cluster: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.launch(experiment_with(cluster))
    before = contents(runs)
    replace = Path.replace

    def fail_for_manifest(self: Path, target: Path) -> Path:
        if self.name == save_experiment.MANIFEST_FILE:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_for_manifest)
    with pytest.raises(BackendError, match="No space left"):
        cluster.launch(experiment_with(cluster, "again"), force=True)
    assert contents(runs) == before


def test_values_of_secrets_are_left_out(cluster: Cluster, runs: Path) -> None:
    (runs.parent / "token.txt").write_text("very-secret")
    experiment = cluster.new_experiment("rl", secrets={"token": "token.txt"})
    experiment.new_process("a", command="true").set_env_secret("TOKEN", "token")
    cluster.launch(experiment)
    assert "very-secret" not in "".join(contents(runs).values())
    assert "token" in contents(runs)["rl/manifest.yml"]
