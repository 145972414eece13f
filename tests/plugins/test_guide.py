"""The guide for authors of backends shows the examples, and the links in all pages work.

The tests of all pages (tests/docs) compare its code blocks with the examples.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-backend.md"
EXCERPT = re.compile(r"^<!-- excerpt: (\S+) -->$", re.M)
EXAMPLES = ("examples/backend", "tests/plugins/symphony-example-backend")
MAX_LINES = 300
# The tokens of lines without code.
LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_guide_shows_all_modules_of_the_examples() -> None:
    shown = set(EXCERPT.findall(GUIDE.read_text(encoding="utf-8")))
    for example in EXAMPLES:
        modules = [path for path in (ROOT / example).rglob("*.py") if path.name != "__init__.py"]
        assert modules
        missing = {str(path.relative_to(ROOT)) for path in modules} - shown
        # The plug-ins of both have the same form.
        assert all(name.endswith("plugin.py") for name in missing), missing


def test_the_guide_and_its_backend_are_short() -> None:
    assert len(GUIDE.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    sources = (ROOT / EXAMPLES[0]).rglob("*.py")
    assert sum(len(code_lines(path.read_text(encoding="utf-8"))) for path in sources) <= MAX_LINES


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines with code, without imports and docstrings."""
    lines: set[int] = set()
    skipped: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines - skipped


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
