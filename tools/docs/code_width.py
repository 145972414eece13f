"""Report code, tables and drawings that are cut off in a browser.

Run ``scripts/docs`` first to build the site, then ``PYTHONPATH=tools python -m docs.code_width``.
The program serves the site to headless Chromium. A page with a script opens each of the site's
pages in frames of different widths, compares the width of each block with the width of its content,
and sends the results to the program.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from docs.pages import ROOT

SITE = ROOT / "site"
WIDTHS_PIXELS = (1400, 500)
TIMEOUT_SECONDS = 300
CHROMIUM_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,1000",
)
SCRIPT_PATH = "/measure-code-width.html"
SCRIPT = """<!doctype html><script>
const pages = %(pages)s, widths = %(widths)s;
const blocks = ".md-content pre > code, .md-content .md-typeset__table, .md-content svg";
function open(page, width) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.style = `width:${width}px;height:900px;border:0`;
    frame.onload = () => resolve(frame);
    frame.src = "/" + page;
    document.body.append(frame);
  });
}
async function measure() {
  const findings = [];
  for (const page of pages) for (const width of widths) {
    const frame = await open(page, width);
    // The theme moves tables into scrollable boxes after the page has been loaded.
    await new Promise(resolve => setTimeout(resolve, 50));
    for (const block of frame.contentDocument.querySelectorAll(blocks)) {
      const box = block.closest(".md-typeset__scrollwrap") || block;
      if (box.scrollWidth > box.clientWidth + 1)
        findings.push({page, width, text: block.innerText.trim().slice(0, 60),
                       over: box.scrollWidth - box.clientWidth});
    }
    frame.remove();
  }
  await fetch("/", {method: "POST", body: JSON.stringify(findings)});
}
document.addEventListener("DOMContentLoaded", measure);
</script><body></body>"""


class _Handler(SimpleHTTPRequestHandler):
    """An HTTP request handler that serves the site and the script, and receives the result."""

    def __init__(self, *arguments: Any, results: queue.Queue[Any], **options: Any) -> None:
        self.results = results
        super().__init__(*arguments, directory=str(SITE), **options)

    def do_GET(self) -> None:
        if self.path != SCRIPT_PATH:
            super().do_GET()
            return
        pages = [path.relative_to(SITE).as_posix() for path in sorted(SITE.rglob("*.html"))]
        values = {"pages": json.dumps(pages), "widths": json.dumps(WIDTHS_PIXELS)}
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((SCRIPT % values).encode())

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.results.put(json.loads(self.rfile.read(size)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Do not log requests."""


def measure() -> list[dict[str, Any]]:
    """Return a description of each block whose content is wider than the block.

    Raises `queue.Empty` if the browser sends no results within `TIMEOUT_SECONDS`.
    """
    results: queue.Queue[Any] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, results=results))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}{SCRIPT_PATH}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", *CHROMIUM_OPTIONS, "--remote-debugging-port=0"]
        browser = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            findings: list[dict[str, Any]] = results.get(timeout=TIMEOUT_SECONDS)
            return findings
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


def main() -> None:
    """Print the findings and exit. The exit code is 1 if there are any findings."""
    if shutil.which("chromium") is None:
        sys.exit("chromium was not found on the PATH; install it, for example with apt-get")
    if not SITE.is_dir():
        sys.exit("the directory 'site' does not exist; build it with scripts/docs")
    findings = measure()
    for found in findings:
        first_line = found["text"].partition("\n")[0]
        print(f"{found['page']} at {found['width']} pixels: {found['over']} too wide: {first_line}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
