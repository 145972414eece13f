"""The paths of a copy: in a process, or on this machine."""

from __future__ import annotations

import pytest

from symphony.cluster.remote_path import parse_remote_path, parse_transfer
from symphony.errors import SpecError


@pytest.mark.parametrize(
    ("text", "process", "group", "path"),
    [("a:b", "a", None, "b"), ("g/a:/b:c", "a", "g", "/b:c"), ("a:", "a", None, ".")],
)
def test_remote_paths(text: str, process: str, group: str | None, path: str) -> None:
    found = parse_remote_path(text)
    assert found is not None
    assert (found.process, found.group, found.path) == (process, group, path)
    assert parse_remote_path(str(found)) == found


@pytest.mark.parametrize(
    "text", ["a", "./a:b", "/a:b", "A:b", "a/b/c:d", "../a:b", "a b:c", ":a", ""]
)
def test_local_paths(text: str) -> None:
    assert parse_remote_path(text) is None


def test_one_path_of_a_transfer_is_remote() -> None:
    assert parse_transfer("a:x", "y") == (parse_remote_path("a:x"), None)
    assert parse_transfer("y", "a:x") == (None, parse_remote_path("a:x"))


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [("a:x", "b:y", "paths in processes"), ("x", "./a:y", "local paths")],
)
def test_two_paths_of_the_same_kind(source: str, target: str, kind: str) -> None:
    with pytest.raises(SpecError, match=f"are both {kind}: one of them must be process:path"):
        parse_transfer(source, target)
