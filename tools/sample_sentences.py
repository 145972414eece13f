#!/usr/bin/env python3
"""Print a random sample of the project's sentences for an editor to judge.

usage: tools/sample_sentences.py [-n COUNT] [--seed NUMBER] [PATH ...]

The sentences come from docstrings, comments, Markdown pages and recorded help screens. Without a
PATH, the program reads all help screens, Python files and Markdown pages that git tracks, except
tests and two generated pages. With the same seed, it prints the same sample as long as the files do
not change.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HELP_SCREENS = "tests/cli/golden/help/"
GENERATED = ("docs/reference/command-line.md", "docs/reference/parity.md")
FEWEST_WORDS = 4

SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
MARKUP = re.compile(r"<!--.*?-->|<[^>\n]+>", re.DOTALL)


def main() -> None:
    """Parse the command line and print one sentence per line, preceded by its file's path."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", "--count", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, help="a number that makes the sample repeatable")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    options = parser.parse_args()

    sentences = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sorted(files(options.paths))
        for sentence in sentences_of(path)
    ]
    sample = random.Random(options.seed).sample(sentences, min(options.count, len(sentences)))
    print(f"{len(sample)} of {len(sentences)} sentences")
    print("\n".join(sample))


def files(paths: list[Path]) -> list[Path]:
    """Return the tracked files at `paths` or, if no path is given, all tracked files that contain
    prose.
    """
    command = ["git", "ls-files", "--", *map(str, paths)]
    tracked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = [name for name in tracked.splitlines() if name.endswith((".py", ".md", ".txt"))]
    return [ROOT / name for name in names if paths or is_prose(name)]


def is_prose(name: str) -> bool:
    """Return whether a tracked file belongs to the sample if no path is given."""
    if name.startswith(HELP_SCREENS):
        return True
    if name.startswith("tests/") or name in GENERATED:
        return False
    return name.endswith((".py", ".md"))


def sentences_of(path: Path) -> Iterator[str]:
    """Yield the sentences of a file that have at least `FEWEST_WORDS` words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        passages = python_passages(text)
    elif path.suffix == ".md":
        passages = markdown_passages(text)
    elif str(path.relative_to(ROOT)).startswith(HELP_SCREENS):
        passages = help_passages(text)
    else:
        return
    for passage in passages:
        for sentence in SENTENCE_END.split(" ".join(passage.split())):
            if is_code(sentence):
                continue
            if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= FEWEST_WORDS:
                yield sentence


def is_code(text: str) -> bool:
    """Return whether a passage is a directive, a command or an expression rather than a
    sentence.
    """
    return text.startswith((":::", "symphony ", "$ ", "`")) and not text.endswith((".", ":"))


def python_passages(source: str) -> Iterator[str]:
    """Yield each docstring paragraph and each block of comment lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node) or ""
            for paragraph in docstring.split("\n\n"):
                if not paragraph.lstrip().startswith((">>>", "    ")):
                    yield paragraph
    block: list[str] = []
    last_line = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("#!", "# noqa", "# type:")):
            continue
        if token.start[0] != last_line + 1:
            yield " ".join(block)
            block = []
        block.append(token.string.lstrip("# "))
        last_line = token.start[0]
    yield " ".join(block)


def markdown_passages(text: str) -> Iterator[str]:
    """Yield each paragraph, list item and table cell of a page, without its code blocks."""
    text = MARKUP.sub("", FENCE.sub("", text))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*+-]|\d+\.) )|\n(?=\|)", text):
        if paragraph.lstrip().startswith("|"):
            yield from paragraph.split("|")
        elif not paragraph.lstrip().startswith("#"):
            yield re.sub(r"^\s*(?:[*+-]|\d+\.) ", "", paragraph)


def help_passages(text: str) -> Iterator[str]:
    """Yield the help text of each option, and each paragraph of a description.

    Each screen is recorded at several widths. Only the recording at the first width is read.
    """
    text = re.split(r"^-{4} .* -{4}$", text, flags=re.MULTILINE)[1]
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("usage:"):
            continue
        for entry in re.split(r"\n(?=  \S)", paragraph):
            columns = re.split(r" {2,}", entry.strip(), maxsplit=1)
            yield columns[-1]


if __name__ == "__main__":
    main()
