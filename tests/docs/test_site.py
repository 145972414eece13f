"""Test the configuration of the site and the links of its pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def entries(nav: Any) -> Iterator[str]:
    """Yield the pages of the navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from entries(below)
    else:
        for below in nav:
            yield from entries(below)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(entries(CONFIG["nav"]))
    assert sorted(set(PAGES) - set(listed)) == [], "add these pages to nav in mkdocs.yml"
    assert len(set(listed)) == len(listed)


def test_navigation_contains_only_pages() -> None:
    assert sorted(set(entries(CONFIG["nav"])) - set(PAGES)) == []


def test_site_loads_nothing_from_other_sites() -> None:
    assert CONFIG["theme"]["font"] is False
    assert not {"extra_javascript", "repo_url"} & set(CONFIG)
    assert not re.search(r"https?://", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    # For Mermaid fences, the theme would load a library from another site.
    assert "custom_fences" not in str(CONFIG["markdown_extensions"])


def test_every_problem_is_a_warning() -> None:
    assert (
        set(CONFIG["validation"]["nav"].values())
        == set(CONFIG["validation"]["links"].values())
        == {"warn"}
    )
    script = (ROOT / "scripts" / "docs").read_text(encoding="utf-8")
    assert "mkdocs build --strict" in script
    assert "--quiet" not in re.sub("#.*", "", script)  # a quiet build does not count warnings


def prose(page: str) -> str:
    """Return a page without its code."""
    text = re.sub(r"(?ms)^ *(```+).*?^ *\1", "", (DOCS / page).read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]+`", "code", text)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:|#", link):
            assert not link.startswith("/"), link
            assert ((DOCS / page).parent / link.partition("#")[0]).exists(), link


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "docs", *arguments], capture_output=True, text=True, check=False
    )


def test_script_has_a_usage() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/docs [serve")
    refused = run("severe")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == done.stdout


def test_ci_builds_the_site() -> None:
    assert "scripts/docs" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
