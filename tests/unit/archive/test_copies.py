"""The names of copies, and which run is the copy of a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony.archive.archive import Run
from symphony.archive.copies import copy_name, is_copy
from symphony.archive.origin import find_origin
from symphony.errors import SpecError


def run_of(directory: Path, copy_of: str | None, experiment: str | None = None) -> Run:
    summary: dict[str, Any] = {
        "experiment": experiment or copy_name("rl", directory),
        "origin": str(find_origin(directory)),
        "given": {"copy_of": copy_of},
    }
    return Run(directory, summary)


def test_a_copy_is_named_after_its_worktree(tmp_path: Path) -> None:
    inner = tmp_path / "Fix_Rate" / "experiments"
    inner.mkdir(parents=True)
    assert copy_name("rl", inner) == "rl-experiments"
    (tmp_path / "Fix_Rate" / ".git").write_text("gitdir: elsewhere")
    assert copy_name("rl", inner) == "rl-fix-rate"


def test_a_directory_whose_name_has_no_letter_is_reported(tmp_path: Path) -> None:
    (tmp_path / "___").mkdir()
    with pytest.raises(SpecError, match=r"contains no letter and no digit; .* --name"):
        copy_name("rl", tmp_path / "___")


def test_a_run_is_the_copy_of_its_origin_and_of_the_named_experiment(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    assert is_copy(run_of(tmp_path, "rl"), "rl", tmp_path)
    assert not is_copy(run_of(tmp_path, "rl"), "other", tmp_path)
    assert not is_copy(run_of(tmp_path, "rl"), "rl", inner)
    assert not is_copy(run_of(tmp_path, None), "rl", tmp_path)
    assert not is_copy(run_of(tmp_path, "rl", "again"), "rl", tmp_path)


def test_a_record_without_options_is_no_copy(tmp_path: Path) -> None:
    origin = str(find_origin(tmp_path))
    assert not is_copy(Run(tmp_path, {"origin": origin}), "rl", tmp_path)
    assert not is_copy(Run(tmp_path, {"origin": origin, "given": []}), "rl", tmp_path)
