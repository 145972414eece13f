"""Forward HTTP/1.1 requests and responses (RFC 9112) from one connection to another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from kubetest.rawapi import Access

# The reason that the API server gives for each HTTP error status.
REASONS = {
    403: "Forbidden",
    409: "AlreadyExists",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first line and the headers of a request or a response. Header names are in lower case."""

    line: str
    headers: tuple[tuple[str, str], ...]

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.line.split(" ")[0]

    @property
    def path(self) -> str:
        """The path and query of a request."""
        return self.line.split(" ")[1]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.line.split(" ")[1])

    def get(self, name: str) -> str:
        """Return the value of a header, or an empty string if there is none."""
        return next((value for key, value in self.headers if key == name), "")

    def encode(self, changes: Mapping[str, str]) -> bytes:
        """Return the head as bytes, with the headers in `changes` replaced or added."""
        kept = [(key, value) for key, value in self.headers if key not in changes]
        lines = [self.line, *(f"{key}: {value}" for key, value in (*kept, *changes.items()))]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Return the head of the next message, or None if the connection was closed."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *fields = text[:-4].split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return Head(line=line, headers=tuple((key.lower(), value.strip()) for key, _, value in pairs))


async def read_body(head: Head, reader: asyncio.StreamReader) -> bytes:
    """Return a request's body as it was sent, including any chunk framing."""
    pieces = [piece async for piece in _pieces(head, reader, ends_with_connection=False)]
    return b"".join(pieces)


def error_answer(
    status: int, retry_after: int | None, message: str = "a fault that the test asked for"
) -> bytes:
    """Return an error response in the format that the API server uses."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(status, "Unknown"),
        "code": status,
    }
    headers = [] if retry_after is None else [("retry-after", str(retry_after))]
    return json_answer(body, status=status, headers=headers)


def json_answer(
    content: object, *, status: int = 200, headers: Iterable[tuple[str, str]] = ()
) -> bytes:
    """Return a response with an object as JSON."""
    body = json.dumps(content).encode()
    own = (("content-type", "application/json"), ("content-length", str(len(body))))
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return Head(line=line, headers=(*own, *headers)).encode({}) + body


class Upstream:
    """A connection to the API server that carries the requests of one client connection.

    The connection is reopened if necessary.
    """

    def __init__(self, target: Access) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, head: Head, body: bytes) -> Head:
        """Send a request and return the head of the response. Raises OSError if there is no
        response.
        """
        address = urlsplit(self._target.host)
        message = head.encode({"host": address.netloc}) + body
        kept = self._streams is not None
        answer = await self._send(message)
        # If the API server has closed the kept-alive connection in the meantime, reconnect once.
        if answer is None and kept:
            await self.close()
            answer = await self._send(message)
        if answer is None:
            raise ConnectionError(f"{self._target.host} closed the connection")
        return answer

    async def pass_on(
        self,
        head: Head,
        answer: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Forward the response to the client.

        Return whether the client's connection can stay open.
        """
        upstream_reader, upstream_writer = await self._open()
        writer.write(answer.encode({}))
        if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
            await asyncio.gather(_pipe(reader, upstream_writer), _pipe(upstream_reader, writer))
            return False
        async for piece in self._answer_pieces(head, answer):
            writer.write(piece)
            await writer.drain()
        return answer.get("connection").lower() != "close" and _is_framed(answer)

    async def read_answer(self, head: Head, answer: Head) -> None:
        """Read the rest of a response and discard it."""
        async for _ in self._answer_pieces(head, answer):
            pass

    async def close(self) -> None:
        """Close the connection without a TLS shutdown, to which the API server can be slow to
        respond.
        """
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.transport.abort()
            await closed(writer)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            address = urlsplit(self._target.host)
            port = address.port or (443 if self._target.tls else 80)
            self._streams = await asyncio.open_connection(
                address.hostname, port, ssl=self._target.tls, limit=1 << 20
            )
        return self._streams

    async def _send(self, message: bytes) -> Head | None:
        reader, writer = await self._open()
        try:
            writer.write(message)
            return await read_head(reader)
        except ConnectionError:
            return None

    async def _answer_pieces(self, head: Head, answer: Head) -> AsyncIterator[bytes]:
        reader, _ = await self._open()
        empty = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        if head.method == "HEAD" or answer.status in empty:
            return
        async for piece in _pieces(answer, reader, ends_with_connection=True):
            yield piece


async def _pieces(
    head: Head, reader: asyncio.StreamReader, *, ends_with_connection: bool
) -> AsyncIterator[bytes]:
    """Yield a body in pieces as it arrives, including any chunk framing."""
    if head.get("transfer-encoding").lower() == "chunked":
        size = -1
        while size:
            line = await reader.readline()
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
    elif length := head.get("content-length"):
        remaining = int(length)
        while remaining:
            piece = await reader.read(min(remaining, 1 << 16))
            if not piece:
                raise ConnectionError("the connection ended in the middle of a body")
            remaining -= len(piece)
            yield piece
    elif ends_with_connection:
        while piece := await reader.read(1 << 16):
            yield piece


def _is_framed(answer: Head) -> bool:
    return bool(answer.get("transfer-encoding") or answer.get("content-length"))


async def closed(writer: asyncio.StreamWriter) -> None:
    """Wait until a closed connection has been released, and ignore network errors."""
    with suppress(OSError):
        await writer.wait_closed()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy data from `reader` to `writer` until the end of the stream, and then close `writer`."""
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
