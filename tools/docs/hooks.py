"""Hooks that extend MkDocs. Each problem is logged as a warning, and any warning makes a strict
build fail.

* A link to a file outside ``docs`` is replaced by text with the file's path, because the site does
  not contain the file. A link to a missing file is a problem.
* A fence that MkDocs would show as text is a problem.
* A resource that a browser would load from another site is a problem.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Extension
from markdown.treeprocessors import Treeprocessor

# A strict build counts this logger's warnings.
log = logging.getLogger("mkdocs.hooks.symphony")

_EXTERNAL_SOURCE = r'<(?:script|img|iframe|source|video)\b[^>]*\ssrc="((?:https?:)?//[^"]+)"'
_EXTERNAL_LINK = r'<link\b(?![^>]*\brel="canonical")[^>]*\shref="((?:https?:)?//[^"]+)"'
_EXTERNAL_RESOURCE = re.compile(f"{_EXTERNAL_SOURCE}|{_EXTERNAL_LINK}")
_FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
_INFO_STRING = re.compile(r' ?(\{.*\}|[-+\w]*( \w+="[^"]*")*) *')


class FileLinks(Treeprocessor):
    """A Markdown tree processor that replaces links to files outside ``docs``."""

    def __init__(self) -> None:
        super().__init__()
        self.docs = self.page = Path()

    def run(self, root: Element) -> None:
        """Replace a page's links to files outside ``docs``."""
        for anchor in root.iter("a"):
            href = anchor.get("href", "")
            if href.startswith("../"):
                self._replace(anchor, href.partition("#")[0])

    def _replace(self, anchor: Element, href: str) -> None:
        target = (self.page.parent / href).resolve()
        if target.is_relative_to(self.docs):
            return
        if not target.exists():
            page = self.page.relative_to(self.docs)
            log.warning("%s links to %s, which does not exist in the project", page, href)
            return
        path = str(target.relative_to(self.docs.parent)) + ("/" if target.is_dir() else "")
        _show_path(anchor, path)


def _show_path(anchor: Element, path: str) -> None:
    """Replace a link with its text and the file's path, or with only the path if the text is the
    file name.
    """
    words = "".join(anchor.itertext()).strip()
    anchor.tag = "span"
    anchor.attrib.clear()
    code = Element("code")
    code.text = path
    if words.strip("/").split("/")[-1] == Path(path).name:
        anchor.text = None
        anchor[:] = [code]
        return
    if len(anchor):
        anchor[-1].tail = (anchor[-1].tail or "") + " ("
    else:
        anchor.text = f"{words} ("
    anchor.append(code)
    code.tail = ")"


class _FileLinks(Extension):
    """The Markdown extension that registers `LINKS` to run before MkDocs validates links."""

    def extendMarkdown(self, md: Any) -> None:  # noqa: N802  # the name is that of Markdown
        md.treeprocessors.register(LINKS, "symphony-files", 5)


LINKS = FileLinks()


def on_config(config: Any) -> Any:
    """Add the Markdown extension to the configuration."""
    LINKS.docs = Path(config["docs_dir"]).resolve()
    config["markdown_extensions"].append(_FileLinks())
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Record the current page, and report invalid fences."""
    LINKS.page = LINKS.docs / page.file.src_uri
    for line in _invalid_fences(markdown):
        log.warning(
            '%s: MkDocs does not recognize the fence %s; write the language and title="..."',
            page.file.src_uri,
            line,
        )
    return markdown


def _invalid_fences(markdown: str) -> Iterator[str]:
    """Yield each line that begins a code block but that MkDocs would show as text."""
    open_fence = ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        if not open_fence:
            open_fence = found[1]
            if not _INFO_STRING.fullmatch(found[2]):
                yield line.strip()
        elif found[1] == open_fence and not found[2].strip():
            open_fence = ""


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Report resources that a browser would load from another site."""
    for source, link in _EXTERNAL_RESOURCE.findall(output):
        log.warning("%s loads %s from another site", page.file.src_uri, source or link)
    return output
