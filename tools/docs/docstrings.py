"""A Griffe extension for the API reference that converts docstrings to Markdown.

Examples become code blocks, and public names become links to their descriptions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Extension

from docs.md import fence_examples, link_names

API = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api"
_DOCUMENTED_OBJECT = re.compile(r"(?m)^::: (\S+)")


class Readable(Extension):
    """The extension that converts each docstring before it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, str] = {}
        for page in API.glob("*.md"):
            for path in _DOCUMENTED_OBJECT.findall(page.read_text("utf-8")):
                self.paths[path.rpartition(".")[2]] = path

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Convert an object's docstring.

        The object's own name and its parent's name are not linked.
        """
        if obj.is_alias or obj.docstring is None:
            return
        own_names = {obj.name, obj.parent.name if obj.parent else ""}
        others = {name: path for name, path in self.paths.items() if name not in own_names}
        obj.docstring.value = link_names(fence_examples(obj.docstring.value), others)
