"""The page that shows the run's progress: ``/`` is for people, ``/data.json`` is for programs, and
``/events`` reports changes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from roles import board
from roles.board import Board
from roles.member import Member, messages
from symphony import address
from symphony.addons.zmq import ZmqPull


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
        seen = self._board.wait(0)
        try:
            while seen is not None:
                self.wfile.write(f"data: {seen}\n\n".encode())
                seen = self._board.wait(seen)
        except ConnectionError:
            pass  # The client has closed the connection.

    def log_message(self, *_: object) -> None:
        """Log nothing, because requests are frequent."""


class Server(ThreadingHTTPServer):
    """An HTTP server that handles each request in a separate thread. These threads do not prevent
    the program from exiting.
    """

    daemon_threads = True
    block_on_close = False


def main() -> None:
    shown = Board()
    where = address("page")
    with ZmqPull(service="screen", serializer="json") as screen:
        with Server((where.bind_host, where.port), partial(Handler, shown)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            print(f"listening on {where.bind_host}:{where.port}", flush=True)
            with Member("collector") as member:
                for message in messages(screen, member):
                    shown.take(message)
                shown.close()
            server.shutdown()


if __name__ == "__main__":
    main()
