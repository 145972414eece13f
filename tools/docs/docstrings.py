"""Docstrings as Markdown: examples become blocks of code, and public names lead to where they are told of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Extension

from docs.md import fenced, linked

API = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api"


class Readable(Extension):
    """Rewrites each docstring that is read, before it is shown."""

    def __init__(self) -> None:
        super().__init__()
        paths = (
            path
            for page in API.glob("*.md")
            for path in re.findall(r"(?m)^::: (\S+)", page.read_text("utf-8"))
        )
        self.places = {path.rpartition(".")[2]: path for path in paths}

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one; its own name is no link in it."""
        if not obj.is_alias and obj.docstring is not None:
            own = {obj.name, obj.parent.name if obj.parent else ""}
            others = {name: path for name, path in self.places.items() if name not in own}
            obj.docstring.value = linked(fenced(obj.docstring.value), others)
