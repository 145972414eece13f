"""The generated pages: where each is, and what it says now."""

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
    """The pages, by their places in the project, that are not what would be written."""
    return [_place(name) for name, page in PAGES.items() if _read(REFERENCE / name) != page()]


def write() -> list[Path]:
    """Write those that are out of date; their places in the project."""
    written = outdated()
    for place in written:
        (ROOT / place).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / place).write_text(PAGES[place.name](), encoding="utf-8")
    return written


def _place(name: str) -> Path:
    return (REFERENCE / name).relative_to(ROOT)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
