"""JSON over HTTP, with the standard library only."""

import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Handler = Callable[[Any], Any]


def serve(service: str, handlers: Mapping[str, Handler]) -> None:
    """Answer requests at the address that this process binds, until the process is stopped."""

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(handlers[self.path](request)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Do not log each request."""

    host = os.environ[f"SYMPH_{service.upper()}_BIND_HOST"]
    port = int(os.environ[f"SYMPH_{service.upper()}_PORT"])
    ThreadingHTTPServer((host, port), Requests).serve_forever()


def addresses(service: str) -> list[str]:
    """Return the addresses of all replicas of a service."""
    return os.environ[f"SYMPH_{service.upper()}_ADDRS"].split(",")


def post(address: str, path: str, request: Any) -> Any:
    """Send a request, and return the answer."""
    body = json.dumps(request).encode()
    with urllib.request.urlopen(f"http://{address}{path}", data=body, timeout=60) as answer:
        return json.load(answer)
