"""The origins of experiments, and which of them differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from symphony.archive.origin import find_origin, other_origin


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    """A worktree that git has added: its .git is a file."""
    (tmp_path / "tree" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    return tmp_path / "tree"


def recorded(directory: Path) -> dict[str, str]:
    return {"base_directory": str(directory), "origin": str(find_origin(directory))}


def test_the_origin_is_the_worktree_or_the_directory(tmp_path: Path, worktree: Path) -> None:
    assert find_origin(worktree / "deep" / "er") == worktree
    assert find_origin(worktree) == worktree
    assert find_origin(tmp_path) == tmp_path


def test_a_symbolic_link_has_the_origin_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to("one")
    assert other_origin(recorded(tmp_path / "one"), tmp_path / "link") is None


def test_directories_of_one_worktree_have_the_same_origin(tmp_path: Path, worktree: Path) -> None:
    assert other_origin(recorded(worktree / "deep"), worktree) is None
    assert other_origin(recorded(worktree / "deep"), tmp_path) == str(worktree)


def test_another_directory_has_another_origin(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert other_origin(recorded(tmp_path / "one"), tmp_path / "two") == str(tmp_path / "one")


def test_an_origin_that_is_not_known_or_does_not_exist_is_accepted(tmp_path: Path) -> None:
    assert other_origin({"base_directory": str(tmp_path)}, tmp_path / "two") is None
    assert other_origin({"origin": None}, tmp_path / "two") is None
    assert other_origin(recorded(tmp_path / "removed"), tmp_path / "two") is None


def test_a_directory_that_has_become_a_repository_keeps_its_experiments(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    record = recorded(tmp_path / "one")
    (tmp_path / ".git").mkdir()
    assert other_origin(record, tmp_path / "one") is None
