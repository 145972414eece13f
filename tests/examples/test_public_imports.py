"""The examples import only the modules of symphony that are documented for users."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PUBLIC = {
    *("symphony", "symphony.addons", "symphony.addons.zmq", "symphony.commandline"),
    *("symphony.engine", "symphony.kube", "symphony.local", "symphony.testing", "symphony.tmux"),
}
# A backend uses the modules that docs/writing-a-backend.md describes.
PROGRAMS = [
    path
    for path in sorted(EXAMPLES.rglob("*.py"))
    if path.relative_to(EXAMPLES).parts[0] != "backend"
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_imports_only_public_modules(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module)
    own = {name for name in imported if name.partition(".")[0] == "symphony"}
    assert own <= PUBLIC
