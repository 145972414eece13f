"""Applying the patterns of ``.dockerignore`` and ``.symphonyignore`` files, without I/O.

The rules for ``.dockerignore`` files are those of the container engines. They differ from the rules
for ``.gitignore`` files, so libraries for gitignore patterns are not suitable: in a
``.dockerignore`` file, a pattern without a slash matches only at the top level, and a later line
can re-include files in an excluded directory. The ``PatternMatcher`` of docker-py also differs from
the engines: it supports neither backslash escapes nor negated sets such as ``[^a]``, and
``**.pyc`` does not match ``a.pyc``. The rules are documented at
https://docs.docker.com/build/concepts/context/

The rules for ``.symphonyignore`` files are those of git, except that a line can re-include files in
an excluded directory. `parse_git_rules` translates them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from symphony.errors import SpecError

FILE = ".dockerignore"
_WILD = frozenset("*?[\\")

# One value for each pattern: True if the pattern applies to a path or to one of its parent
# directories.
Matches = tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A line of a ``.dockerignore`` file. ``regex`` is its pattern as a regular expression, and
    ``exception`` is true if the line re-includes matching paths (``!``).

    ``head`` contains the path components with which every matching path starts.
    """

    regex: re.Pattern[str]
    exception: bool
    head: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ignore:
    """The patterns of one ``.dockerignore`` file, or of a snapshot. The last line that matches a
    path determines whether the path is excluded.
    """

    patterns: tuple[Pattern, ...] = ()

    def matches(self, path: str, above: Matches | None = None) -> Matches:
        """Return which lines match ``path``, which is relative to the directory that contains the
        file. ``above`` is the result for the parent directory of ``path``.

        As in the engines, a line is not evaluated for a path if it would not change the result for
        this path. Such a line therefore has no effect on the paths below that path either. For
        example, after ``a/*``, the line ``!a`` does not re-include any files.
        """
        found: list[bool] = []
        excluded = False
        for pattern, inherited in zip(
            self.patterns, above or (False,) * len(self.patterns), strict=True
        ):
            hit = inherited or (
                pattern.exception == excluded and pattern.regex.fullmatch(path) is not None
            )
            found.append(hit)
            if hit:
                excluded = not pattern.exception
        return tuple(found)

    def excludes(self, matches: Matches) -> bool:
        """Return whether a path is excluded, given the ``matches`` for this path."""
        decisive = [
            pattern.exception for pattern, hit in zip(self.patterns, matches, strict=True) if hit
        ]
        return bool(decisive) and not decisive[-1]

    def may_include_again(self, directory: str) -> bool:
        """Return whether a line could re-include a file in the excluded ``directory``."""
        names = tuple(directory.split("/"))
        heads = (pattern.head for pattern in self.patterns if pattern.exception)
        return any(head[: len(names)] == names[: len(head)] for head in heads)


def parse(text: str, filename: str) -> Ignore:
    """Parse the text of a ``.dockerignore`` file. Raises `SpecError` for a line that no engine
    accepts. The error message contains ``filename``.
    """
    return Ignore(tuple(_patterns(text, filename)))


def parse_git_rules(lines: Iterable[str], where: str) -> Ignore:
    """Parse lines with the rules of ``.gitignore`` files.

    A pattern without a slash, other than one at its end, matches at every level. A slash at its end
    restricts it to directories. Raises `SpecError` for an invalid pattern. The error message
    contains ``where``.
    """
    text = "\n".join(_anchored(line) for line in lines)
    return parse(text, where)


def _anchored(line: str) -> str:
    """Return the line of a ``.dockerignore`` file with the meaning of a line in ``.gitignore``."""
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return ""
    exception = "!" if stripped.startswith("!") else ""
    pattern = stripped.removeprefix("!")
    names = [_with_single_stars(name) for name in pattern.split("/")]
    is_directory = names[-1] == "" and len(names) > 1
    if is_directory:
        names.pop()
    if len(names) == 1 and names != [""]:
        names.insert(0, "**")
    if is_directory:
        names.append("**")
    return f"{exception}{'/'.join(names)}"


def _with_single_stars(name: str) -> str:
    """Return a part of a pattern in which one star replaces several, unless it is ``**``."""
    return name if name == "**" else re.sub(r"\*+", "*", name)


def _patterns(text: str, filename: str) -> Iterator[Pattern]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or line.startswith("#"):
            continue
        exception = stripped.startswith("!")
        pattern = stripped[1:].strip() if exception else stripped
        if not pattern:
            raise SpecError(f"{filename}:{number}: '!' is alone; write a pattern after it")
        cleaned = posixpath.normpath(pattern).lstrip("/")
        if cleaned in {"", "."}:
            continue  # The engines ignore a pattern that matches the whole context.
        try:
            regex = re.compile(_translated(cleaned), re.DOTALL)
        except ValueError as exc:
            raise SpecError(
                f"{filename}:{number}: {stripped!r} is not a valid pattern: {exc}"
            ) from exc
        yield Pattern(regex=regex, exception=exception, head=_head(cleaned))


def _head(pattern: str) -> tuple[str, ...]:
    names = []
    for name in pattern.split("/"):
        if not _WILD.isdisjoint(name):
            break
        names.append(name)
    return tuple(names)


def _translated(pattern: str) -> str:
    """Convert a pattern to a regular expression. Raises ValueError if the pattern is invalid."""
    ending = pattern.removeprefix("**")
    if ending not in {pattern, ""} and _WILD.isdisjoint(ending) and not ending.startswith("/"):
        # In the engines, **.pyc matches every path with this ending.
        return f".*{re.escape(ending)}"
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        part, place = _next(pattern, place)
        parts.append(part)
    return "".join(parts)


def _next(pattern: str, place: int) -> tuple[str, int]:
    """Return a regular expression for the part of the pattern at ``place``, and the position after
    that part.
    """
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
    """Return the character at ``place``, which can be escaped with a backslash, and the position
    after it.
    """
    if pattern[place : place + 1] == "\\":
        place += 1
    if place >= len(pattern):
        raise ValueError("it ends too early")
    return pattern[place], place + 1


def _set(pattern: str, place: int) -> tuple[str, int]:
    """Parse a character class from ``place``, which is the position after ``[``. Return its regular
    expression and the position after ``]``. ``^`` negates the class.
    """
    negated = pattern.startswith("^", place)
    place += negated
    ranges: list[str] = []
    while not (ranges and pattern.startswith("]", place)):
        if pattern[place : place + 1] in {"]", "-"}:
            raise ValueError("a set in [] must start with neither ']' nor '-'")
        low, place = _literal(pattern, place)
        high = low
        if pattern.startswith("-", place):
            high, place = _literal(pattern, place + 1)
        if high < low:
            raise ValueError(f"the range {low}-{high} is reversed")
        ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    return f"[{'^' if negated else ''}{''.join(ranges)}]", place + 1
