"""What docs/writing-a-backend.md shows stands in the package word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SOURCE

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-backend.md"
SHOWN = re.findall(r"^```\w+ (\S+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize(("name", "text"), SHOWN, ids=[f"{n}-{name}" for n, (name, _) in enumerate(SHOWN)])
def test_what_the_guide_shows_is_what_the_tests_run(name: str, text: str) -> None:
    assert text in (SOURCE / name).read_text(encoding="utf-8")


def test_the_guide_shows_both_backends() -> None:
    assert {Path(name).parts[0] for name, _ in SHOWN} >= {"pyproject.toml", "symphony_inline", "symphony_polite"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
