"""What a ``.dockerignore`` leaves out, by the rules of the engines themselves. Pure.

They are not those of a ``.gitignore``: a pattern without a slash matches at the top alone, and what lies in a folder
that is left out can be taken back by a later line. The rules: https://docs.docker.com/build/concepts/context/
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from symphony.errors import SpecError

FILE = ".dockerignore"
_WILD = frozenset("*?[\\")

# By line of the file: whether that pattern decided something about a path or a folder above it.
Matches = tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line: what it matches, and whether that is taken back in (``!``).

    ``head`` are the names that a path begins with wherever this matches.
    """

    regex: re.Pattern[str]
    exception: bool
    head: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ignore:
    """The lines of one file; the last that matches a path decides."""

    patterns: tuple[Pattern, ...] = ()

    def matches(self, path: str, above: Matches | None = None) -> Matches:
        """What matches ``path``, relative to the folder of the file; ``above`` is the same of the folder it is in.

        As with the engines, a line that would change nothing about a path is not looked at for it, and so says
        nothing about what is below it: after ``a/*``, a ``!a`` takes nothing back.
        """
        found: list[bool] = []
        out = False
        for pattern, inherited in zip(
            self.patterns, above or (False,) * len(self.patterns), strict=True
        ):
            hit = inherited or (
                pattern.exception == out and pattern.regex.fullmatch(path) is not None
            )
            found.append(hit)
            out = (not pattern.exception) if hit else out
        return tuple(found)

    def leaves_out(self, matches: Matches) -> bool:
        """Whether what matches so is left out."""
        decisive = [
            pattern.exception for pattern, hit in zip(self.patterns, matches, strict=True) if hit
        ]
        return bool(decisive) and not decisive[-1]

    def may_take_back(self, folder: str) -> bool:
        """Whether something in a folder that is left out may be in nevertheless."""
        names = tuple(folder.split("/"))
        heads = (pattern.head for pattern in self.patterns if pattern.exception)
        return any(head[: len(names)] == names[: len(head)] for head in heads)


def parse(text: str, where: str) -> Ignore:
    """Read a file's text; ``where`` names the file in the `SpecError` for a line that no engine would take."""
    return Ignore(tuple(_patterns(text, where)))


def _patterns(text: str, where: str) -> Iterator[Pattern]:
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.strip()
        if not written or line.startswith("#"):
            continue
        exception = written.startswith("!")
        bare = written[1:].strip() if exception else written
        if not bare:
            raise SpecError(
                f"{where}:{number}: '!' stands alone; write what is taken back after it"
            )
        cleaned = posixpath.normpath(bare).lstrip("/")
        if cleaned in {"", "."}:
            continue  # the engines let a pattern for all of it pass without effect
        try:
            regex = re.compile(_translated(cleaned), re.DOTALL)
        except ValueError as exc:
            raise SpecError(f"{where}:{number}: {written!r} is no pattern: {exc}") from exc
        yield Pattern(regex=regex, exception=exception, head=_head(cleaned))


def _head(pattern: str) -> tuple[str, ...]:
    names = []
    for name in pattern.split("/"):
        if not _WILD.isdisjoint(name):
            break
        names.append(name)
    return tuple(names)


def _translated(pattern: str) -> str:
    """A pattern as a regular expression. Raises ValueError."""
    ending = pattern.removeprefix("**")
    if ending not in {pattern, ""} and _WILD.isdisjoint(ending) and not ending.startswith("/"):
        return f".*{re.escape(ending)}"  # to the engines, **.pyc is all that ends so
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        part, place = _next(pattern, place)
        parts.append(part)
    return "".join(parts)


def _next(pattern: str, place: int) -> tuple[str, int]:
    """What the pattern says from ``place`` on, and where it goes on after that."""
    char = pattern[place]
    if pattern.startswith("**", place):
        after = place + 2 + pattern.startswith("/", place + 2)
        return ("(?:.*/)?" if after < len(pattern) else ".*"), after
    if char == "*":
        return "[^/]*", place + 1
    if char == "?":
        return "[^/]", place + 1
    if char == "[":
        return _set(pattern, place + 1)
    literal, after = _literal(pattern, place)
    return re.escape(literal), after


def _literal(pattern: str, place: int) -> tuple[str, int]:
    """One character, which a backslash may stand before."""
    if pattern[place : place + 1] == "\\":
        place += 1
    if place >= len(pattern):
        raise ValueError("it ends too early")
    return pattern[place], place + 1


def _set(pattern: str, place: int) -> tuple[str, int]:
    """What follows a ``[``: characters and ranges, all but these after ``^``, up to the ``]``."""
    negated = pattern.startswith("^", place)
    place += negated
    ranges: list[str] = []
    while not (ranges and pattern.startswith("]", place)):
        if pattern[place : place + 1] in {"]", "-"}:
            raise ValueError("a set in [] begins with neither ']' nor '-'")
        low, place = _literal(pattern, place)
        high = low
        if pattern.startswith("-", place):
            high, place = _literal(pattern, place + 1)
        if high < low:
            raise ValueError(f"the range {low}-{high} runs backwards")
        ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    return f"[{'^' if negated else ''}{''.join(ranges)}]", place + 1
