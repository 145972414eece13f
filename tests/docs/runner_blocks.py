"""A page of the documents as the blocks in it: what is a file, what is run, what is left out. Nothing is run here.

The convention, of which this is the one reader:

* ``title="rl.yml"`` after the language: the text is that file of the page's folder.
* ``<!-- excerpt: PATH -->`` above a fence: the text stands word for word in that file of the project.
* ``<!-- not run: REASON -->`` above a fence: it is left out.
* ``<!-- needs: kube, zmq -->`` above a fence, or on the first line of a page for all of it: what it takes to run it.
* ``console`` is commands with their output, ``python`` is run, ``yaml``, ``json`` and ``toml`` are read,
  ``text`` and ``mermaid`` are free. Any other language needs a title or a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

NEEDS = frozenset({"kube", "tmux", "zmq", "docker"})
FREE = frozenset({"text", "mermaid"})
UNDERSTOOD = frozenset({"console", "python", "yaml", "json", "toml"})

_COMMENT = re.compile(r"<!--\s*(needs|not run|excerpt)\s*:(.*?)-->", re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]*)"')
_EXIT = re.compile(r"\s#.*\bexits with (\d+)\s*$")
# Where these begin a paragraph, what is indented below it is no code (admonitions, tabs, options of generated pages).
_CONTAINER = re.compile(r"(!!!|\?\?\?\+?|===)\s")
_OPTIONS = re.compile(r":::\s")


class BadPage(Exception):
    """A page that does not keep to the convention: where, what, and how to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a ``console`` block; ``line`` is that of its prompt, counted from 1 in the page."""

    line: int
    text: str
    exit_code: int
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block; ``line`` is that of its first line of text, counted from 1 in the page.

    Only a ``console`` block that is no file has ``commands``.
    """

    line: int
    language: str
    text: str
    title: str = ""
    excerpt: str = ""
    not_run: str = ""
    needs: frozenset[str] = frozenset()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its path below the project's root, and its blocks in order."""

    name: str
    blocks: tuple[Block, ...]

    @property
    def needs(self) -> frozenset[str]:
        """What some block of it needs."""
        return frozenset().union(*(block.needs for block in self.blocks if not block.not_run))


def parse_page(text: str, name: str) -> Page:
    """The blocks of a page's text. Raises BadPage, which names the page and the line."""
    blocks = tuple(_blocks(text, name))
    for block in blocks:
        _check(block, f"{name}:{block.line - 1}")
    return Page(name=name, blocks=blocks)


def _blocks(text: str, name: str) -> Iterator[Block]:
    everywhere: frozenset[str] = frozenset()
    said: dict[str, str] = {}
    for token, line in _tokens(text):
        where = f"{name}:{line}"
        if token.type == "html_block":
            said |= _said(token.content, where)
            if line == 1:
                everywhere = _needs(said.pop("needs", ""), where)
        elif token.type == "fence":
            yield _block(token, line, said, everywhere, where)
            said = {}
        elif token.type == "code_block":
            raise BadPage(
                f"{where}: an indented block, which nobody runs; fence it, and say its language"
            )
        elif said:
            raise BadPage(
                f"{where}: the comment above ('{next(iter(said))}: ...') has no fenced block right below it"
            )
    if said:
        raise BadPage(
            f"{name}: the comment at its end ('{next(iter(said))}: ...') has no fenced block right below it"
        )


def _tokens(text: str, offset: int = 0) -> Iterator[tuple[Token, int]]:
    """The tokens that matter with the line at which each begins; also those inside admonitions and tabs."""
    above = ""
    for token in MarkdownIt("commonmark").parse(text):
        line = offset + (token.map[0] if token.map else 0) + 1
        if token.type == "code_block" and _CONTAINER.match(above):
            yield from _tokens(token.content, line - 1)
        elif token.type == "code_block" and _OPTIONS.match(above):
            continue
        elif token.type in {"html_block", "fence", "code_block", "inline"}:
            above = token.content if token.type == "inline" else above
            yield token, line


def _said(html: str, where: str) -> dict[str, str]:
    said = {key: " ".join(value.split()) for key, value in _COMMENT.findall(html)}
    for key, value in said.items():
        if not value:
            raise BadPage(f"{where}: '{key}:' says nothing; write it behind the colon")
    return said


def _needs(text: str, where: str) -> frozenset[str]:
    needs = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if unknown := needs - NEEDS:
        raise BadPage(
            f"{where}: needs '{min(unknown)}', which nobody knows; use {', '.join(sorted(NEEDS))}"
        )
    return needs


def _block(
    token: Token, line: int, said: dict[str, str], everywhere: frozenset[str], where: str
) -> Block:
    title = _TITLE.search(token.info)
    language = next(iter(token.info.split()), "")
    is_console = language == "console" and not title and "excerpt" not in said
    return Block(
        line=line + 1,
        language=language,
        text=token.content,
        commands=tuple(_commands(token.content, line + 1, where)) if is_console else (),
        title=title[1] if title else "",
        excerpt=said.get("excerpt", ""),
        not_run=said.get("not run", ""),
        needs=everywhere | _needs(said.get("needs", ""), where),
    )


def _check(block: Block, where: str) -> None:
    if not block.language:
        raise BadPage(f"{where}: a fence without a language; 'text' if it is none")
    for name in filter(None, (block.title, block.excerpt)):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BadPage(f"{where}: '{name}' leads out of the folder; name a file in it")
    told = block.title or block.excerpt or block.not_run
    if not told and block.language not in UNDERSTOOD | FREE:
        raise BadPage(
            f"{where}: nothing is done with '{block.language}'; "
            "use console for commands, a title for a file, or say why it is not run"
        )


def _commands(text: str, first: int, where: str) -> Iterator[Command]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or any(line.strip() for line in lines[: starts[0]]):
        raise BadPage(f"{where}: a console block begins with a command: '$ ' and its words")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _command(lines[start:end], first + start)


def _command(lines: list[str], line: int) -> Command:
    typed = 1
    while lines[typed - 1].endswith("\\") and typed < len(lines):
        typed += 1
    text = "\n".join([lines[0][2:], *lines[1:typed]])
    code = _EXIT.search(text)
    expected = [shown.rstrip() for shown in lines[typed:]]
    while expected and not expected[-1]:
        expected.pop()
    return Command(
        line=line, text=text, exit_code=int(code[1]) if code else 0, expected=tuple(expected)
    )
