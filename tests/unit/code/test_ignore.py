"""Test the rules of .dockerignore. The live image tests compare them with those of an engine."""

from __future__ import annotations

import pytest

from symphony import SpecError
from symphony.code.ignore import Ignore, parse


def is_excluded(ignore: Ignore, path: str) -> bool:
    """Evaluate ``path`` as the scan of a directory does: from the top down."""
    matches = None
    names = path.split("/")
    for depth in range(1, len(names) + 1):
        matches = ignore.matches("/".join(names[:depth]), matches)
    assert matches is not None
    return ignore.excludes(matches)


# The content of the file, the paths that it excludes, and paths that it does not exclude.
CASES: list[tuple[str, str, str]] = [
    ("", "", "a a/b .dockerignore"),
    ("# a\n\n   \n", "", "a #"),
    ("#a\n #b", "#b", "#a a"),
    ("a", "a a/b a/b/c", "ab b/a b"),
    ("/a", "a a/b", "b/a"),
    ("a/", "a a/b", "b/a"),
    ("./a//b/../c", "a/c a/c/d", "a a/b c"),
    ("  a  ", "a", "b"),
    (".", "", "a"),
    ("/", "", "a"),
    ("*", "a .a a/b", ""),
    ("*.pyc", "a.pyc .pyc", "b/a.pyc a.py"),
    ("*/a", "b/a b/a/c", "a b/c/a"),
    ("**/a", "a b/a b/c/a b/a/c", "ab b"),
    ("**/*.pyc", "a.pyc b/a.pyc b/c/a.pyc", "a.py"),
    ("a/**", "a/b a/b/c", "a b"),
    ("a/**/b", "a/b a/c/b a/c/d/b", "a b a/c"),
    ("**", "a a/b", ""),
    ("a?", "ab a?", "a abc a/"),
    ("[ab]c", "ac bc", "cc abc [ab]c"),
    ("[a-c]", "a b c", "d -"),
    ("[^a-c]x", "dx", "ax bx x"),
    ("[!a]", "! a", "b"),
    ("[a\\]]", "a ]", "b \\"),
    ("[[&|~.]", "[ & | ~ .", "a ]"),
    ("\\*", "*", "a"),
    ("a.b", "a.b", "axb"),
    ("a+(b)|{c}$^", "a+(b)|{c}$^", "a aa"),
    ("ä*", "ä äb", "a"),
    ("*.md\n!README.md", "a.md", "README.md b/a.md"),
    ("*.md\n!README*.md\nREADME-secret.md", "a.md README-secret.md", "README.md README-x.md"),
    ("*.md\nREADME-secret.md\n!README*.md", "a.md", "README.md README-secret.md"),
    ("*\n!a", "b b/a", "a a/b a/b/c"),
    ("a\n!a/b", "a a/c", "a/b a/b/c"),
    ("a\n! a/b", "a a/c", "a/b"),
    ("**\n!**/keep", "a a/b", "keep a/keep a/b/keep"),
    ("a\n!a/b\na/b/c", "a a/b/c a/b/c/d", "a/b a/b/d"),
    ("\\!a", "!a", "a"),
    ("**.pyc", "a.pyc .pyc b/c.pyc", "a.pyc.x"),
    ("**.py?", ".pyc b/.pyc", "a.pyc b/c.pyc"),
    ("a/*\n!a", "a/b a/b/c", "a"),
    ("a\n!a", "", "a a/b"),
    ("a\nb\n!a\na/b", "b a/b a/b/c", "a a/c"),
]


@pytest.mark.parametrize(("text", "excluded", "included"), CASES, ids=ascii)
def test_excluded_paths(text: str, excluded: str, included: str) -> None:
    ignore = parse(text, ".dockerignore")
    assert [path for path in excluded.split(" ") if path and not is_excluded(ignore, path)] == []
    assert [path for path in included.split(" ") if path and is_excluded(ignore, path)] == []


@pytest.mark.parametrize(
    ("text", "directory", "expected"),
    [
        ("a", "a", False),
        ("a\n!b", "a", False),
        ("a\n!a/b", "a", True),
        ("a\n!a/b", "a/b/c", True),
        ("a\n!a/b", "a/c", False),
        ("*\n!b/c/*.py", "b", True),
        ("*\n!b/c/*.py", "b/d", False),
        ("*\n!b*/c", "a", True),  # Names with a wildcard are not compared.
        ("*\n!**/c", "a/b", True),
    ],
)
def test_excluded_directory_is_scanned_only_if_an_exception_may_apply(
    text: str, directory: str, expected: bool
) -> None:
    assert parse(text, "f").may_include_again(directory) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n!", "f:2: '!' is alone; write a pattern after it"),
        ("\n\n[a", "f:3: '[a' is not a valid pattern: it ends too early"),
        ("a\\", "f:1: 'a\\\\' is not a valid pattern: it ends too early"),
        ("[]a]", "f:1: '[]a]' is not a valid pattern: a set in [] must start with neither"),
        ("[-a]", "is not a valid pattern: a set in [] must start"),
        ("[z-a]", "is not a valid pattern: the range z-a is reversed"),
    ],
)
def test_invalid_pattern_is_rejected(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, "f")
    assert message in str(caught.value)
