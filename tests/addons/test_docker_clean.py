"""Removing images by patterns, with a stand-in for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from symphony import SpecError, Unreachable
from symphony.addons import clean_images
from tests.addons.docker_standin import StandIn, path

IMAGES = [
    "registry.example/rl:1",
    "registry.example/rl:2",
    "registry.example/rl-old:1",
    "base:latest",
]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path / "bin", "docker", images=list(IMAGES))
    monkeypatch.setenv("PATH", path(made))
    monkeypatch.delenv("SYMPHONY_CONTAINER_ENGINE", raising=False)
    return made


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
def test_what_matches_is_asked_about_and_removed(
    docker: StandIn, patterns: list[str], matched: list[str]
) -> None:
    run_query: list[Sequence[str]] = []

    def yes(names: Sequence[str]) -> bool:
        run_query.append(names)
        return True

    done = clean_images(patterns, confirm=yes)
    assert (list(done.removed), done.step_error, run_query) == (
        matched,
        {},
        [matched] if matched else [],
    )
    assert docker.images == [name for name in IMAGES if name not in matched]
    assert docker.told("image", "rm") == [["image", "rm", name] for name in matched]


def test_nothing_is_removed_unless_the_answer_is_yes(docker: StandIn) -> None:
    assert clean_images("*", confirm=lambda _: False).removed == ()
    with pytest.raises(
        SpecError, match="clean_images needs a confirmation: give confirm=, or force=True"
    ):
        clean_images("*")
    assert docker.images == IMAGES


def test_force_asks_nobody(docker: StandIn) -> None:
    def never(_: Sequence[str]) -> bool:
        raise AssertionError

    assert clean_images(["base:*"], True, confirm=never).removed == ("base:latest",)
    assert docker.told("image", "rm") == [["image", "rm", "--force", "base:latest"]]


def test_one_that_cannot_be_removed_does_not_keep_the_others(docker: StandIn) -> None:
    docker.change(fails=["image", "rm", IMAGES[0]])
    done = clean_images("registry.example/rl:*", confirm=lambda _: True)
    assert done.removed == (IMAGES[1],)
    assert list(done.step_error) == [IMAGES[0]]
    assert done.step_error[IMAGES[0]].startswith(
        "removing registry.example/rl:1 failed with exit code 7: line 16 |"
    )


def test_bad_patterns_and_no_engine_are_told(
    docker: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match="a pattern of images is empty"):
        clean_images(["rl:*", " "], force=True)
    docker.change(daemon=False)
    with pytest.raises(Unreachable, match="docker does not respond"):
        clean_images("rl:*", force=True)
