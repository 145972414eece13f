"""Sending requests to an application without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


def ask(
    app: ASGIApp,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    query: str = "",
) -> Answer:
    """Send one request, and return the response."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    sent: list[Message] = []
    requests = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        return requests.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    names = {key.decode(): value.decode() for key, value in start["headers"]}
    return Answer(start["status"], names, b"".join(part["body"] for part in rest).decode())
