"""Parse a page of the documentation into its code blocks.

Sybil and pytest-markdown-docs do not serve here: each page needs a shell and an interpreter with
their own home directory and state, and several pages run at once against a cluster.

docs/testing.md describes the markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

NEEDS = frozenset({"kube", "tmux", "zmq", "docker"})
LANGUAGES = frozenset({"console", "python", "yaml", "json", "toml", "text", "mermaid"})

_COMMENT = re.compile(r"<!--\s*(needs|not run|excerpt)\s*:(.*?)-->", re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]*)"')
_EXIT_CODE = re.compile(r"\s#.*\bexits with (\d+)\s*$")
# The options of generated API pages are indented like code.
_API_DIRECTIVE = re.compile(r":::\s")


class PageError(Exception):
    """Raised if a page has invalid markup, or if one of its blocks fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a ``console`` block. ``line`` is the line of its prompt in the page, from 1."""

    line: int
    text: str
    exit_code: int
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block. ``line`` is its first line in the page, from 1.

    Only ``console`` blocks without a title have ``commands``.
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
    """A page. ``name`` is its path relative to the project."""

    name: str
    blocks: tuple[Block, ...]

    @property
    def needs(self) -> frozenset[str]:
        """The requirements of all blocks that are run."""
        return frozenset().union(*(block.needs for block in self.blocks if not block.not_run))


def parse_page(text: str, name: str) -> Page:
    """Return the blocks of a page. Raises `PageError` for invalid markup."""
    return Page(name=name, blocks=tuple(_blocks(text, name)))


def _blocks(text: str, name: str) -> Iterator[Block]:
    needs_of_page: frozenset[str] = frozenset()
    comments: dict[str, str] = {}
    previous_text = ""
    for token in MarkdownIt("commonmark").parse(text):
        line = (token.map[0] if token.map else 0) + 1
        location = f"{name}:{line}"
        if token.type == "html_block":
            comments |= _comments(token.content, location)
            if line == 1:
                needs_of_page = _needs(comments.pop("needs", ""), location)
        elif token.type == "fence":
            yield _block(token, line, comments, needs_of_page, location)
            comments = {}
        elif token.type == "code_block" and not _API_DIRECTIVE.match(previous_text):
            raise PageError(f"{location}: an indented block is not run; use a fence and a language")
        elif token.type == "inline":
            previous_text = token.content
            _refuse_comments(comments, location)
    _refuse_comments(comments, name)


def _refuse_comments(comments: dict[str, str], location: str) -> None:
    if comments:
        comment = next(iter(comments))
        raise PageError(f"{location}: no fenced block follows the comment '{comment}: ...'")


def _comments(html: str, location: str) -> dict[str, str]:
    comments = {key: " ".join(value.split()) for key, value in _COMMENT.findall(html)}
    for key, value in comments.items():
        if not value:
            raise PageError(f"{location}: the comment '{key}:' has no value")
    return comments


def _needs(text: str, location: str) -> frozenset[str]:
    needs = {word.strip() for word in text.split(",")} - {""}
    unknown = needs - NEEDS
    if unknown:
        known = ", ".join(sorted(NEEDS))
        raise PageError(f"{location}: unknown need '{min(unknown)}'; use {known}")
    return frozenset(needs)


def _block(
    token: Token, line: int, comments: dict[str, str], needs: frozenset[str], location: str
) -> Block:
    title = _TITLE.search(token.info)
    language = token.info.split()[0] if token.info.strip() else ""
    block = Block(
        line=line + 1,
        language=language,
        text=token.content,
        title=title[1] if title else "",
        excerpt=comments.get("excerpt", ""),
        not_run=comments.get("not run", ""),
        needs=needs | _needs(comments.get("needs", ""), location),
    )
    if not language:
        raise PageError(f"{location}: a fence without a language; use 'text' if there is none")
    for path in (block.title, block.excerpt):
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise PageError(f"{location}: '{path}' is outside the directory")
    is_plain = not (block.title or block.excerpt or block.not_run)
    if is_plain and language not in LANGUAGES:
        raise PageError(
            f"{location}: a block in '{language}' is not run; add a title or a 'not run' comment"
        )
    if language != "console" or block.title or block.excerpt:
        return block
    commands = tuple(_commands(token.content, line + 1, location))
    return replace(block, commands=commands)


def _commands(text: str, first_line: int, location: str) -> Iterator[Command]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or any(line.strip() for line in lines[: starts[0]]):
        raise PageError(f"{location}: a console block must begin with a command ('$ ')")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _command(lines[start:end], first_line + start)


def _command(lines: list[str], line: int) -> Command:
    length = 1
    while lines[length - 1].endswith("\\") and length < len(lines):
        length += 1
    text = "\n".join([lines[0][2:], *lines[1:length]])
    exit_code = _EXIT_CODE.search(text)
    output = "\n".join(lines[length:]).rstrip().splitlines()
    return Command(
        line=line,
        text=text,
        exit_code=int(exit_code[1]) if exit_code else 0,
        output=tuple(shown.rstrip() for shown in output),
    )
