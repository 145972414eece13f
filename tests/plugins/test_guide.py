"""The guide for authors of backends shows the example package, and the links in all pages work.

The tests of all pages (tests/docs) compare its code blocks with the package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SOURCE

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-backend.md"
EXCERPT = re.compile(rf"^<!-- excerpt: tests/plugins/{SOURCE.name}/(\S+) -->$", re.M)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_guide_shows_both_backends() -> None:
    shown = EXCERPT.findall(GUIDE.read_text(encoding="utf-8"))
    directories = {Path(name).parts[0] for name in shown}
    assert directories >= {"pyproject.toml", "symphony_inline", "symphony_polite"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
