"""Markdown as the generated pages need it: text that means nothing else, code, tables and fences."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

WIDTH = 80  # of what is shown as on a terminal

# What is code wherever it stands in plain words: options, variables and ${parameters}, {forms: of values}.
_CODE = re.compile(
    r"(?<![-\w`])(--?[a-z][-a-z]*(?:=[a-z]+| [A-Z]{2,})?(?![-\w`])"
    r"|\$\{?\w+\}?|\b[A-Z]+(?:_[A-Z]+)+\b|\{\w+: [^}]*\})"
)
_SPECIAL = re.compile(r"([\\`*<>\[\]])")
_INDENTED = re.compile(r"(?m)^(?P<lead>\S.*):\n+(?P<lines>(?:[ ]{2,}\S.*\n?)+)")
_PROMPTS = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?!>>>)\S.*\n?)*)+")
_EDGE_OF_WORD = re.compile(r"(?<!\w)_|_(?!\w)")


def text(words: str) -> str:
    """Plain words as Markdown that shows just them, options such as ``--force`` as code."""
    parts = re.split(r"(`[^`]+`)", words)
    return "".join(
        part if part.startswith("`") and len(part) > 1 else _plain(part) for part in parts
    )


def paragraph(words: str) -> str:
    """Plain words, in lines of the length that the other pages have."""
    return textwrap.fill(
        text(" ".join(words.split())), 120, break_long_words=False, break_on_hyphens=False
    )


def _plain(words: str) -> str:
    pieces = _CODE.split(words)
    return "".join(
        code(piece) if index % 2 else _escaped(piece) for index, piece in enumerate(pieces)
    )


def _escaped(words: str) -> str:
    return _EDGE_OF_WORD.sub(r"\\_", _SPECIAL.sub(r"\\\1", words))


def code(words: str) -> str:
    """Words as code on one line."""
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def codes(words: Iterable[str], between: str = ", ") -> str:
    """Each of the words as code."""
    return between.join(map(code, words))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown of one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def fence(language: str, body: str) -> str:
    """A block of code."""
    return f"```{language}\n{body.strip(chr(10))}\n```"


def page(*parts: str) -> str:
    """The parts with an empty line between any two."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def fenced(text: str) -> str:
    """A docstring with its examples in fences."""
    text = _PROMPTS.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _INDENTED.sub(_block, text)


def _block(found: re.Match[str]) -> str:
    lead = found["lead"].rstrip(":")
    return f"{lead}:\n\n```text\n{textwrap.dedent(found['lines']).rstrip()}\n```\n"


def linked(text: str, places: Mapping[str, str]) -> str:
    """A docstring with links from the names in it, such as `Process`, to the places that they have in the pages."""

    def link(found: re.Match[str]) -> str:
        return f"[`{found[1]}`][{places[found[1]]}]" if found[1] in places else found[0]

    return re.sub(r"(?<![`\w])`(\w+)`(?!`)", link, text)
