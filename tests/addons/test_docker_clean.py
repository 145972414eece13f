"""Test the removal of images by patterns, with a fake engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from symphony import SpecError, Unreachable
from symphony.addons import clean_images
from tests.addons.fake_engine import FakeEngine, path_with

IMAGES = [
    "registry.example/rl:1",
    "registry.example/rl:2",
    "registry.example/rl-old:1",
    "base:latest",
]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(tmp_path / "bin", "docker", images=list(IMAGES))
    monkeypatch.setenv("PATH", path_with(engine))
    monkeypatch.delenv("SYMPHONY_CONTAINER_ENGINE", raising=False)
    return engine


@pytest.mark.parametrize(
    ("patterns", "matched"),
    [
        (["registry.example/rl:*"], IMAGES[:2]),
        ("registry.example/rl*", IMAGES[:3]),
        (["*:1", "base:*"], [IMAGES[0], IMAGES[2], IMAGES[3]]),
        (["*/rl:[2-9]"], IMAGES[1:2]),
        (["rl", "*none*", "BASE:*"], []),
        ([], []),
    ],
)
def test_matching_images_are_confirmed_and_removed(
    docker: FakeEngine, patterns: list[str], matched: list[str]
) -> None:
    questions: list[Sequence[str]] = []

    def confirm(names: Sequence[str]) -> bool:
        questions.append(names)
        return True

    result = clean_images(patterns, confirm=confirm)
    assert (list(result.removed), result.failed) == (matched, {})
    assert questions == ([matched] if matched else [])
    assert docker.images == [name for name in IMAGES if name not in matched]
    assert docker.commands("image", "rm") == [["image", "rm", name] for name in matched]


def test_nothing_is_removed_without_confirmation(docker: FakeEngine) -> None:
    assert clean_images("*", confirm=lambda _: False).removed == ()
    with pytest.raises(
        SpecError, match="clean_images needs a confirmation: give confirm=, or force=True"
    ):
        clean_images("*")
    assert docker.images == IMAGES


def test_force_skips_the_confirmation(docker: FakeEngine) -> None:
    def never(_: Sequence[str]) -> bool:
        raise AssertionError

    assert clean_images(["base:*"], True, confirm=never).removed == ("base:latest",)
    assert docker.commands("image", "rm") == [["image", "rm", "--force", "base:latest"]]


def test_other_images_are_removed_after_a_failure(docker: FakeEngine) -> None:
    docker.change(fails=["image", "rm", IMAGES[0]])
    result = clean_images("registry.example/rl:*", confirm=lambda _: True)
    assert result.removed == (IMAGES[1],)
    assert list(result.failed) == [IMAGES[0]]
    assert result.failed[IMAGES[0]].startswith(
        "removing registry.example/rl:1 failed with exit code 7: line 16 |"
    )


def test_empty_pattern_and_stopped_engine_are_reported(
    docker: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match="a pattern of images is empty"):
        clean_images(["rl:*", " "], force=True)
    docker.change(daemon=False)
    with pytest.raises(Unreachable, match="docker does not respond"):
        clean_images("rl:*", force=True)
