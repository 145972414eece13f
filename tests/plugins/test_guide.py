"""What docs/writing-a-backend.md shows is of both backends of the package, and links between pages lead somewhere.

That it stands in the package word for word is tested with the blocks of all pages (tests/docs).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SOURCE

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-backend.md"
SHOWN = re.findall(
    rf"^<!-- excerpt: tests/plugins/{SOURCE.name}/(\S+) -->$",
    GUIDE.read_text(encoding="utf-8"),
    re.M,
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_guide_shows_both_backends() -> None:
    assert {Path(name).parts[0] for name in SHOWN} >= {
        "pyproject.toml",
        "symphony_inline",
        "symphony_polite",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
