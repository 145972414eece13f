"""Functions that format text, code and tables as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

# The width of blocks that represent a terminal.
TERMINAL_COLUMNS = 80
PAGE_COLUMNS = 120

# The words in plain text that are formatted as code: options, variables,
# ${parameters} and {key: value}.
_CODE = re.compile(
    r"(?<![-\w`])(--?[a-z][-a-z]*(?:=[a-z]+| [A-Z]{2,})?(?![-\w`])"
    r"|\$\{?\w+\}?|\b[A-Z]+(?:_[A-Z]+)+\b|\{\w+: [^}]*\})"
)
_SPECIAL = re.compile(r"([\\`*<>\[\]])")
_INDENTED = re.compile(r"(?m)^(?P<lead>\S.*):\n+(?P<lines>(?:[ ]{2,}\S.*\n?)+)")
_PROMPTS = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?!>>>)\S.*\n?)*)+")
_EDGE_OF_WORD = re.compile(r"(?<!\w)_|_(?!\w)")


def text(words: str) -> str:
    """Convert plain text to Markdown. Options such as ``--force`` become code."""
    parts = re.split(r"(`[^`]+`)", words)
    return "".join(
        part if part.startswith("`") and len(part) > 1 else _plain(part) for part in parts
    )


def paragraph(words: str) -> str:
    """Convert plain text to a Markdown paragraph with wrapped lines."""
    return textwrap.fill(
        text(" ".join(words.split())), PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False
    )


def _plain(words: str) -> str:
    pieces = _CODE.split(words)
    return "".join(
        code(piece) if index % 2 else _escaped(piece) for index, piece in enumerate(pieces)
    )


def _escaped(words: str) -> str:
    return _EDGE_OF_WORD.sub(r"\\_", _SPECIAL.sub(r"\\\1", words))


def code(words: str) -> str:
    """Format words as inline code."""
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def codes(words: Iterable[str], between: str = ", ") -> str:
    """Format each of ``words`` as inline code, and join the results with ``between``."""
    return between.join(map(code, words))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Each cell is one line of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def fence(language: str, body: str) -> str:
    """Return a fenced code block."""
    return f"```{language}\n{body.strip(chr(10))}\n```"


def page(*parts: str) -> str:
    """Join the parts of a page with blank lines. Empty parts are skipped."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def fence_examples(text: str) -> str:
    """Convert the examples in a docstring to fenced blocks."""
    text = _PROMPTS.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _INDENTED.sub(_block, text)


def _block(found: re.Match[str]) -> str:
    lead = found["lead"].rstrip(":")
    return f"{lead}:\n\n```text\n{textwrap.dedent(found['lines']).rstrip()}\n```\n"


def link_names(text: str, paths: Mapping[str, str]) -> str:
    """Convert names in a docstring, such as `Process`, to links.

    ``paths`` maps short names to the full names of the objects.
    """

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[`{name}`][{paths[name]}]" if name in paths else found[0]

    return re.sub(r"(?<![`\w])`(\w+)`(?!`)", link, text)
