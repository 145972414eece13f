"""A proxy that injects faults between a client and an API server during a test.

    with FaultProxy(kubeconfig, scratch=directory) as proxy:
        proxy.answer(429, method="POST", path=r"/pods$", times=2)
        proxy.reset(path=r"/services", times=1, after=True)   # performed, but without a response
        ... use proxy.kubeconfig ...
        assert proxy.count(method="POST", path=r"/pods$") == 3

The proxy listens on the loopback interface without TLS. It forwards responses in pieces, so that
watches and followed logs are streamed. For exec and port forwarding, it forwards all bytes in both
directions.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from kubetest import relay
from kubetest.rawapi import Access, access
from kubetest.rights import refusal

Action = Literal["delay", "drop", "reset", "answer", "forbid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that the proxy received, and the fault that was applied to it, if any."""

    method: str
    path: str
    fault: Action | None


@dataclass(slots=True, kw_only=True)
class Fault:
    """An action that is applied to matching requests.

    `times` is the number of times that the action will still be applied, or None if there is no
    limit.
    """

    action: Action
    method: str | None = None
    path: str = ""
    times: int | None = None
    after: bool = False
    seconds: float = 0
    status: int = 500
    retry_after: int | None = None
    body: object = None

    def matches(self, method: str, path: str) -> bool:
        """Return whether the fault applies to a request.

        The regular expression `path` can match any part of the request's path.
        """
        return (
            self.times != 0
            and self.method in (None, method)
            and re.search(self.path, path) is not None
        )


class FaultProxy:
    """The proxy, as a context manager. Any thread can set and clear faults at any time."""

    def __init__(self, kubeconfig: Path, *, scratch: Path) -> None:
        self._access: Access = access(kubeconfig)
        self._scratch = scratch
        self._faults: list[Fault] = []
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # The fault of all connections.
        self._interruption: Fault | None = None

    def delay(
        self, seconds: float, *, method: str | None = None, path: str = "", times: int | None = None
    ) -> None:
        """Delay matching requests by `seconds` seconds."""
        self._add(Fault(action="delay", seconds=seconds, method=method, path=path, times=times))

    def drop(
        self,
        *,
        method: str | None = None,
        path: str = "",
        times: int | None = None,
        after: bool = False,
    ) -> None:
        """Never respond to matching requests.

        If `after` is true, forward each request to the API server first.
        """
        self._add(Fault(action="drop", method=method, path=path, times=times, after=after))

    def reset(
        self,
        *,
        method: str | None = None,
        path: str = "",
        times: int | None = None,
        after: bool = False,
    ) -> None:
        """Reset the client's connection when a matching request is received.

        If `after` is true, forward the request to the API server first.
        """
        self._add(Fault(action="reset", method=method, path=path, times=times, after=after))

    def answer(
        self,
        status: int,
        *,
        method: str | None = None,
        path: str = "",
        times: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Respond to matching requests with an error, as the API server would.

        These requests are not forwarded.
        """
        self._add(
            Fault(
                action="answer",
                status=status,
                method=method,
                path=path,
                times=times,
                retry_after=retry_after,
            )
        )

    def forbid(self, *, method: str | None = None, path: str = "") -> None:
        """Refuse matching requests, as the API server does if the user lacks the right to them."""
        self._add(Fault(action="forbid", method=method, path=path))

    def respond(self, body: object, *, method: str = "GET", path: str) -> None:
        """Respond to matching requests with an object, in place of an API that is not installed."""
        self._add(Fault(action="answer", method=method, path=path, body=body))

    def interrupt(self, *, silent: bool) -> None:
        """Interrupt all connections, and each new one until `restore` is called.

        A connection is reset or, if ``silent`` is true, nothing is received on it any more.
        """
        fault = Fault(action="drop" if silent else "reset")
        self._run(self._set_interruption(fault))

    def restore(self) -> None:
        """Forward the requests of new connections again. Silent connections remain silent."""
        self._run(self._set_interruption(None))

    def clear(self) -> None:
        """Remove every fault."""
        with self._lock:
            self._faults.clear()

    def calls(self, *, method: str | None = None, path: str = "") -> list[Call]:
        """Return the matching requests that the proxy has received so far, in order."""
        with self._lock:
            return [
                call
                for call in self._calls
                if method in (None, call.method) and re.search(path, call.path)
            ]

    def count(self, *, method: str | None = None, path: str = "") -> int:
        """Return the number of matching requests that the proxy has received so far."""
        return len(self.calls(method=method, path=path))

    @property
    def kubeconfig(self) -> Path:
        """The path of a kubeconfig for the proxy.

        The file contains the original kubeconfig's token, if there is one.
        """
        user = {}
        if self._access.authorization:
            user = {"token": self._access.authorization.removeprefix("Bearer ")}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "p", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "p", "user": user}],
            "contexts": [{"name": "p", "context": {"cluster": "p", "user": "p"}}],
            "current-context": "p",
        }
        path = self._scratch / "faults.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _set_interruption(self, fault: Fault | None) -> None:
        self._interruption = fault
        if fault is not None:
            for task in self._tasks:
                task.cancel()

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _next_fault(self, method: str, path: str) -> Fault | None:
        """Record a request, and return the first fault that applies to it."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.matches(method, path)), None)
            if fault is not None and fault.times is not None:
                fault.times -= 1
            action = fault.action if fault else None
            self._calls.append(Call(method=method, path=path, fault=action))
            return fault

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._interruption = None
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            if self._interruption is None:
                # The task is canceled when the connections are interrupted.
                with suppress(asyncio.CancelledError):
                    await self._serve(reader, writer)
            if self._interruption is not None:
                await _fail(self._interruption, reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # One side has closed its connection, or the test has finished.
        finally:
            writer.close()
            await relay.closed(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a client's requests one after another, unless a fault applies."""
        upstream = relay.Upstream(self._access)
        try:
            while head := await relay.read_head(reader):
                body = await relay.read_body(head, reader)
                fault = self._next_fault(head.method, head.path)
                if fault is not None and fault.action == "delay":
                    await asyncio.sleep(fault.seconds)
                elif fault is not None and fault.body is not None:
                    writer.write(relay.json_answer(fault.body))
                    continue
                elif fault is not None and fault.action == "forbid":
                    message = refusal(head.method, head.path)
                    writer.write(relay.error_answer(403, None, message))
                    continue
                elif fault is not None and fault.action == "answer":
                    writer.write(relay.error_answer(fault.status, fault.retry_after))
                    continue
                elif fault is not None and not fault.after:
                    return await _fail(fault, reader, writer)
                answer = await upstream.ask(head, body)
                if fault is not None and fault.after:
                    await upstream.read_answer(head, answer)
                    return await _fail(fault, reader, writer)
                if not await upstream.pass_on(head, answer, reader, writer):
                    return None
        finally:
            await upstream.close()


async def _fail(fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset the connection, or remain silent until the client closes the connection."""
    if fault.action == "reset":
        peer: socket.socket = writer.get_extra_info("socket")
        # Closing a socket with a linger time of 0 s resets the connection; see socket(7).
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return
    while await reader.read(1 << 16):
        pass
