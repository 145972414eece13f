"""The page that shows the run's progress: ``/`` is for people, ``/data.json`` is for programs, and
``/events`` reports changes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from roles import board, checks
from roles.board import Board
from roles.member import messages
from symphony import address
from symphony.addons.zmq import ZmqPull

# If there are no changes, the stream of events contains a comment at this interval in seconds. If
# the client has closed the connection, the write fails, and the thread of the request ends.
COMMENT_SECONDS = 5.0


class Handler(BaseHTTPRequestHandler):
    """The handler for one request."""

    def __init__(self, shown: Board, *given: Any) -> None:
        self._board = shown
        super().__init__(*given)

    def do_GET(self) -> None:
        """Respond with the page, the part of it that changes, the data, or a stream of events that
        contain the number of changes.
        """
        pages: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html", lambda: board.page(self._board.data())),
            "/live": ("text/html", lambda: board.live(self._board.data())),
            "/data.json": ("application/json", lambda: json.dumps(self._board.data())),
        }
        path = self.path.partition("?")[0]
        if path == "/events":
            self._stream()
        elif path in pages:
            kind, content = pages[path]
            self._answer(kind, content().encode())
        else:
            self.send_error(404)

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        seen = 0
        while True:
            changes = self._board.wait(seen, COMMENT_SECONDS)
            # A line that begins with a colon is a comment.
            line = f"data: {changes}" if changes > seen else ":"
            self.wfile.write(f"{line}\n\n".encode())
            seen = changes

    def log_message(self, *_: object) -> None:
        """Log nothing, because requests are frequent."""


class Server(ThreadingHTTPServer):
    """An HTTP server that handles each request in a separate thread. These threads do not prevent
    the program from exiting.
    """

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error of a request, unless the client has closed the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    shown = Board()
    where = address("page")
    with ZmqPull(service="screen", serializer="json") as screen:
        with Server((where.bind_host, where.port), partial(Handler, shown)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            print(f"listening on {where.bind_host}:{where.port}", flush=True)
            for message in messages(screen, checks.point_or_path):
                shown.take(message)


if __name__ == "__main__":
    main()
