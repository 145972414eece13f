"""A viewer without a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

TIMEOUT = 60  # seconds


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Sends the requests of the page to the server with this address."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host = parts.netloc
        self.headers: dict[str, str] = {}
        answer = self._send("GET", f"{parts.path}?{parts.query}")
        assert answer.status == 303, answer
        self.directory = answer.headers["Location"].partition("#")[0]
        self.headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]

    def _send(self, method: str, path: str, body: str | None = None, **headers: str) -> Response:
        with self._opened(method, path, body, headers) as response:
            return Response(response.status, response.headers, response.read())

    @contextlib.contextmanager
    def _opened(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT)
        connection.request(method, path, body, {**self.headers, **headers})
        with contextlib.closing(connection), connection.getresponse() as response:
            yield response

    def _path(self, call: str, query: Mapping[str, Any]) -> str:
        return f"{self.directory}api/{call}?{urlencode(query, doseq=True)}"

    def open(self, call: str, **query: Any) -> Response:
        """Return the response to a call of the page."""
        return self._send("GET", self._path(call, query))

    def get(self, call: str, **query: Any) -> Any:
        """Return the data of a call."""
        return json.loads(self.open(call, **query).body)

    def control(self, **control: Any) -> Any:
        """Return the answer to a control."""
        return self.post("control", **control)

    def post(self, call: str, **body: Any) -> Any:
        """Return the answer to a call that changes something."""
        headers = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        path = self._path(call, {})
        return json.loads(self._send("POST", path, json.dumps(body), **headers).body)

    def stream(self, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the messages of a stream."""
        with self._opened("GET", self._path("stream", query), None, {}) as response:
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
