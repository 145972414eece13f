"""Launches that are saved: what stands in the folder, what is refused, and what is left of one that fails."""

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
from symphony.config import launches
from tests.unit.configured import Surroundings, surroundings

__all__ = ["surroundings"]


@pytest.fixture
def cluster(surroundings: Surroundings) -> Iterator[Cluster]:
    cluster = Cluster.new("local")
    yield cluster
    cluster.delete_batch(cluster.list_experiments())


@pytest.fixture
def runs(surroundings: Surroundings) -> Path:
    SymphonyConfig().set_experiment_folder("runs")
    return surroundings.work / "runs"


def described(cluster: Cluster, message: str = "hello") -> Experiment:
    experiment = cluster.new_experiment("rl")
    experiment.new_process("a", command=["echo", message]).binds("s")
    return experiment


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_launch_is_saved_as_it_was_written_and_as_it_was_made(
    cluster: Cluster, runs: Path
) -> None:
    experiment = described(cluster)
    experiment.base_dir = runs.parent
    manifest = cluster.launch(experiment)
    assert sorted(contents(runs)) == ["rl/experiment.yml", "rl/manifest.yml"]
    assert (runs / "rl" / "manifest.yml").read_text() == str(manifest)
    first = (runs / "rl" / "experiment.yml").read_text().splitlines()[0]
    assert first.startswith("# Launched on local at ")
    assert first.endswith(f"Relative paths begin at {runs.parent}")
    assert (
        Experiment.load_file(runs / "rl" / "experiment.yml").dump_dict() == experiment.dump_dict()
    )
    assert [path.name for path in runs.iterdir()] == ["rl"]


def test_without_a_folder_nothing_is_saved(cluster: Cluster, surroundings: Surroundings) -> None:
    cluster.launch(described(cluster))
    assert list(surroundings.work.iterdir()) == []


def test_a_dry_run_saves_nothing(
    cluster: Cluster, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.launch(described(cluster), dry_run=True)
    assert "echo hello" in capsys.readouterr().out
    assert not runs.exists()


def test_a_name_that_is_saved_is_refused_and_stays_as_it_is(cluster: Cluster, runs: Path) -> None:
    cluster.launch(described(cluster))
    cluster.delete("rl")
    before = contents(runs)
    with pytest.raises(
        AlreadyExists, match=rf"^experiment 'rl' is saved in {runs}/rl already; launch with force"
    ):
        cluster.launch(described(cluster, "again"))
    assert (contents(runs), cluster.list_experiments()) == (before, [])


def test_with_force_it_is_replaced_and_other_files_stay(cluster: Cluster, runs: Path) -> None:
    cluster.launch(described(cluster))
    (runs / "rl" / "model.pt").write_text("precious")
    manifest = cluster.launch(described(cluster, "again"), force=True)
    found = contents(runs)
    assert sorted(found) == ["rl/experiment.yml", "rl/manifest.yml", "rl/model.pt"]
    assert "again" in found["rl/experiment.yml"]
    assert (found["rl/manifest.yml"], found["rl/model.pt"]) == (str(manifest), "precious")


@pytest.mark.parametrize("force", [False, True])
def test_a_launch_that_fails_leaves_what_was_there(
    cluster: Cluster, runs: Path, force: bool
) -> None:
    if force:
        cluster.launch(described(cluster))
    before = contents(runs)
    wrong = cluster.new_experiment("rl")
    wrong.new_process("a", command="no-such-program")
    with pytest.raises((LaunchFailed, SpecError)):
        cluster.launch(wrong, force=force)
    assert contents(runs) == before
    assert [path.name for path in runs.iterdir()] == (["rl"] if force else [])


def test_a_folder_that_cannot_be_made_is_told_before_anything_starts(
    cluster: Cluster, runs: Path
) -> None:
    runs.write_text("no folder")
    with pytest.raises(
        BackendError,
        match=rf"'rl' cannot be saved in {runs}: {runs}: File exists; see experiment_fo",
    ):
        cluster.launch(described(cluster))
    assert cluster.list_experiments() == []


def test_a_launch_that_cannot_be_saved_is_taken_back(
    cluster: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "rl").mkdir(parents=True)
    monkeypatch.setattr(launches.os.path, "lexists", lambda _: False)  # somebody else was quicker
    (runs / "rl" / "other").write_text("")
    with pytest.raises(BackendError, match="cannot be saved in"):
        cluster.launch(described(cluster))
    assert cluster.list_experiments() == []
    assert contents(runs) == {"rl/other": ""}


def test_half_of_a_replacement_is_undone(
    cluster: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.launch(described(cluster))
    before = contents(runs)
    replace = Path.replace

    def broken(self: Path, target: Path) -> Path:
        if self.name == launches.MANIFEST:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(BackendError, match="No space left"):
        cluster.launch(described(cluster, "again"), force=True)
    assert contents(runs) == before


def test_a_batch_is_saved_one_by_one(cluster: Cluster, runs: Path) -> None:
    experiments = [described(cluster), cluster.new_experiment("other")]
    experiments[1].new_process("a", command="true")
    cluster.launch_batch(experiments)
    assert sorted(path.name for path in runs.iterdir()) == ["other", "rl"]


def test_secrets_are_left_out(surroundings: Surroundings, runs: Path) -> None:
    """As a dry run of the same backend has it."""
    (surroundings.work / "token.txt").write_text("very-secret")
    cluster = Cluster.new("local")
    experiment = cluster.new_experiment("rl", secrets={"token": "token.txt"})
    experiment.new_process("a", command="true").set_env_secret("TOKEN", "token")
    cluster.launch(experiment)
    cluster.delete("rl")
    assert "very-secret" not in "".join(contents(runs).values())
    assert "token" in contents(runs)["rl/manifest.yml"]
