"""What is typed to copy from and to processes."""

from __future__ import annotations

import pytest

from symphony.cluster.remote_path import parse_remote_path, parse_transfer
from symphony.errors import SpecError


@pytest.mark.parametrize(
    ("text", "process", "group", "path"),
    [("a:b", "a", None, "b"), ("g/a:/b:c", "a", "g", "/b:c"), ("a:", "a", None, ".")],
)
def test_paths_beside_processes(text: str, process: str, group: str | None, path: str) -> None:
    found = parse_remote_path(text)
    assert found is not None
    assert (found.process, found.group, found.path) == (process, group, path)
    assert parse_remote_path(str(found)) == found


@pytest.mark.parametrize(
    "text", ["a", "./a:b", "/a:b", "A:b", "a/b/c:d", "../a:b", "a b:c", ":a", ""]
)
def test_paths_of_this_machine(text: str) -> None:
    assert parse_remote_path(text) is None


def test_one_end_is_beside_a_process() -> None:
    assert parse_transfer("a:x", "y") == (parse_remote_path("a:x"), None)
    assert parse_transfer("y", "a:x") == (None, parse_remote_path("a:x"))
    for source, target, said in (
        ("a:x", "b:y", "two processes"),
        ("x", "./a:y", "two paths of this machine"),
    ):
        with pytest.raises(SpecError, match=f"are {said}: one of them is process:path"):
            parse_transfer(source, target)
