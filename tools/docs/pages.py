"""List, compare and write the generated pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs import command_line, experiment_file, parity

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line.page,
    "experiment-file.md": experiment_file.page,
    "parity.md": lambda: parity.page(ROOT),
}


def outdated() -> list[Path]:
    """Return the paths, relative to the project, of the pages that are out of date."""
    return [
        (REFERENCE / name).relative_to(ROOT)
        for name, generate in PAGES.items()
        if _read(REFERENCE / name) != generate()
    ]


def write() -> list[Path]:
    """Write the pages that are out of date, and return their paths relative to the project."""
    paths = outdated()
    for path in paths:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(PAGES[path.name](), encoding="utf-8")
    return paths


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
