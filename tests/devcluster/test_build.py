"""The changes of the source of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster import build
from machines.console import ToolError


def test_source_is_changed_once(tmp_path: Path) -> None:
    for name, old, _ in build.SOURCE_CHANGES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + old)
    build._change(tmp_path)
    for name, old, new in build.SOURCE_CHANGES:
        text = (tmp_path / name).read_text()
        assert new in text
        assert old not in text
    with pytest.raises(ToolError, match="does not contain the part that build.py changes"):
        build._change(tmp_path)
