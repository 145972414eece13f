"""What the site's builder calls beside its plug-ins: each finding is a warning, which fails a strict build.

* A link to a file of the project outside of ``docs`` becomes the file's place in the project, since a site does not
  know where its project is hosted. That there is such a file is checked.
* A fence that is none to the builder, and would be shown as text, is told.
* So is whatever a page would have a reader's browser fetch from elsewhere.
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

log = logging.getLogger("mkdocs.hooks.symphony")  # whose warnings a strict build counts

_FETCHED = re.compile(r'<(?:script|img|iframe|source|video)\b[^>]*\ssrc="((?:https?:)?//[^"]+)"|'
                      r'<link\b(?![^>]*\brel="canonical")[^>]*\shref="((?:https?:)?//[^"]+)"')  # fmt: skip
_FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
_AFTER_FENCE = re.compile(r' ?(\{.*\}|[-+\w]*( \w+="[^"]*")*) *')


class FileLinks(Treeprocessor):
    """Turns links out of the folder of documents into the places where the files are."""

    def __init__(self) -> None:
        super().__init__()
        self.docs = self.page = Path()

    def run(self, root: Element) -> None:
        """Look at each link of a page, before the builder looks for pages that it knows."""
        for anchor in root.iter("a"):
            href = anchor.get("href", "")
            if href.startswith("../"):
                self._link(anchor, href.partition("#")[0])

    def _link(self, anchor: Element, href: str) -> None:
        target = (self.page.parent / href).resolve()
        if target.is_relative_to(self.docs):
            return
        if not target.exists():
            log.warning(
                "%s links to %s, which is no file of the project",
                self.page.relative_to(self.docs),
                href,
            )
            return
        place = str(target.relative_to(self.docs.parent)) + ("/" if target.is_dir() else "")
        _show(anchor, place)


def _show(anchor: Element, place: str) -> None:
    """Put the place of a file after the words of the link, or instead where they say nothing else."""
    words = "".join(anchor.itertext()).strip()
    anchor.tag = "span"
    anchor.attrib.clear()
    code = Element("code")
    code.text = place
    if words.strip("/").split("/")[-1] == Path(place).name:
        anchor.text = None
        anchor[:] = [code]
    elif len(anchor):
        anchor[-1].tail = (anchor[-1].tail or "") + " ("
        anchor.append(code)
        code.tail = ")"
    else:
        anchor.text = f"{words} ("
        anchor.append(code)
        code.tail = ")"


class _FileLinks(Extension):
    """Runs `LINKS` after links are made, and before the builder checks them."""

    def extendMarkdown(self, md: Any) -> None:
        md.treeprocessors.register(LINKS, "symphony-files", 5)


LINKS = FileLinks()


def on_config(config: Any) -> Any:
    """Have links looked at."""
    LINKS.docs = Path(config["docs_dir"]).resolve()
    config["markdown_extensions"].append(_FileLinks())
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Note which page is read, and tell of its fences that are none."""
    LINKS.page = LINKS.docs / page.file.src_uri
    for line in _odd_fences(markdown):
        log.warning(
            '%s: %s is no fence here; after ``` stand the language and title="..."',
            page.file.src_uri,
            line,
        )
    return markdown


def _odd_fences(markdown: str) -> Iterator[str]:
    """The lines that begin a block of code, and that the builder would not take for that."""
    inside = ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found and not inside:
            inside = found[1]
            if not _AFTER_FENCE.fullmatch(found[2]):
                yield line.strip()
        elif found and found[1] == inside and not found[2].strip():
            inside = ""


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Tell of what is fetched from elsewhere."""
    for script, link in _FETCHED.findall(output):
        log.warning("%s has browsers fetch %s", page.file.src_uri, script or link)
    return output
