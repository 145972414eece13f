"""A real browser, and the page of a real server in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.web.server import Server

TIMEOUT_MILLISECONDS = 10_000
expect.set_options(timeout=TIMEOUT_MILLISECONDS)
# Returns the texts whose contrast to their background is less than 4.5:1 (WCAG 2.2, 1.4.3).
LOW_CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const background = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const shape = at.matches(".box") && at.querySelector(".shape");
            const style = getComputedStyle(shape || at);
            const found = rgba(shape ? style.fill : style.backgroundColor);
            if (found[3] > 200) return found;
        }
        return [255, 255, 255, 255];
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (!text || !element.checkVisibility({visibilityProperty: true})) continue;
        if (element.closest(".visually-hidden, noscript, title, :disabled")) continue;
        const style = getComputedStyle(element);
        const colour = rgba(element instanceof SVGElement ? style.fill : style.color);
        const both = [luminance(colour), luminance(background(element))];
        const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
        if (ratio < 4.5) found.push(`${text}: ${ratio.toFixed(2)}`);
    }
    return found;
}"""


def chromium() -> str:
    """Return the path of Chromium, or skip the test."""
    for name in ("chromium-headless-shell", "chromium", "google-chrome"):
        program = shutil.which(name)
        if program is not None:
            return program
    reason = "needs Chromium: run scripts/test --with-browser"
    if os.environ.get("SYMPHONY_TEST_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def running_browser() -> Iterator[Any]:
    """Run Chromium during the block. The test is skipped if it is not installed."""
    path = chromium()
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Viewer:
    """A tab of the browser. Everything that it complains about is in ``problems``."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT_MILLISECONDS)
        self.problems: list[str] = []
        self.requests: set[str] = set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._note_console)
        self.page.on("request", lambda request: self.requests.add(request.url.split("?")[0]))
        self._origin, _, _ = server.address.partition("?")
        self.page.goto(server.address)
        self.base: str = self.page.url.split("#")[0]

    def _note_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def open(self, path: str) -> Any:
        """Show a view, and return the page."""
        self.page.goto(f"{self.base}#{path}")
        return self.page

    def close(self) -> None:
        """Close the tab. It must not have complained, or asked another server."""
        self.context.close()
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith(self._origin)] == []


def find_box(page: Any, key: str) -> Any:
    """Return the box of the topology with this key."""
    return page.locator(f'.box[data-key="{key}"]')


def confirm(page: Any, question: str, answer: str) -> None:
    """Answer the question of a control."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(question)
    dialog.get_by_role("button", name=answer).click()
