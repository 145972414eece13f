"""Running the server of `symphony ui` until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TypeGuard

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from symphony.cluster import Cluster
from symphony.errors import BackendError
from symphony.views.controls import Controls
from symphony.views.web.channels import OpenWatch
from symphony.views.web.routes import application
from symphony.views.web.security import Access, Guard
from symphony.views.web.stream import FindCluster, Viewing

HOST = "127.0.0.1"
# How long the server waits for responses that are being sent when it is stopped.
STOP_TIMEOUT_SECONDS = 1
MAX_CONNECTIONS = 500
# If more connections than this have not sent a complete request, the oldest ones are closed. Other
# users of the machine could otherwise use up all connections.
MAX_WAITING_CONNECTIONS = 100


class WebServer:
    """The server of the page. It listens when it is created, and answers while `run` runs.

    ``controls`` are the commands that the page offers. Port 0 stands for any free port. Raises
    `BackendError` if the port cannot be used.
    """

    def __init__(
        self,
        find_cluster: FindCluster,
        open_list: OpenWatch,
        controls: Controls,
        *,
        port: int = 0,
        read_only: bool = False,
        start: str = "",
    ) -> None:
        self._find_cluster = find_cluster
        self._open_list = open_list
        self._controls = controls
        self._socket = _listen(port)
        self.access = Access(port=self._socket.getsockname()[1], read_only=read_only, start=start)
        self._server: _Server | None = None

    def run(self, on_ready: Callable[[], None]) -> None:
        """Answer requests until SIGINT or SIGTERM, or until `stop` is called.

        ``on_ready`` is called when requests are answered. The signals have their effect
        afterwards.
        """
        asyncio.run(self._serve(on_ready))

    def stop(self) -> None:
        """Stop the server. The method can be called in any thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        viewing = Viewing(_Clusters(self._find_cluster), self._open_list)
        config = uvicorn.Config(
            Guard(application(viewing, self.access, self._controls), self.access),
            log_config=None,
            access_log=False,
            lifespan="off",
            loop="asyncio",
            http=_Connection,
            ws="none",
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=STOP_TIMEOUT_SECONDS,
        )
        self._server = _Server(config, viewing, on_ready)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            viewing.tunnels.close()


class _Server(uvicorn.Server):
    """The server of the library, which also ends the streams when it stops."""

    def __init__(
        self, config: uvicorn.Config, viewing: Viewing, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._viewing = viewing
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and close all connections."""
        self._viewing.stop()
        await super().shutdown(sockets)


class _Connection(H11Protocol):
    """A connection of the library, which closes the oldest ones that send no request."""

    _numbers = itertools.count()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection."""
        super().connection_made(transport)
        self._number = next(self._numbers)
        waiting = [item for item in self.connections if _is_waiting(item)]
        if len(waiting) > MAX_WAITING_CONNECTIONS:
            oldest = min(waiting, key=lambda item: item._number)
            oldest.transport.close()


def _is_waiting(connection: object) -> TypeGuard[_Connection]:
    """Return whether a connection is open and has no request that is being answered."""
    if not isinstance(connection, _Connection) or connection.transport.is_closing():
        return False
    return connection.cycle is None or connection.cycle.response_complete


class _Clusters:
    """Clusters by the names of their backends, each of which is created once."""

    def __init__(self, find_cluster: FindCluster) -> None:
        self._find_cluster = find_cluster
        self._lock = threading.Lock()
        self._known: dict[str, Cluster] = {}

    def __call__(self, backend: str) -> Cluster:
        with self._lock:
            if backend not in self._known:
                self._known[backend] = self._find_cluster(backend)
            return self._known[backend]


def _listen(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OSError as exc:
        listening.close()
        raise BackendError(
            f"cannot listen on {HOST}:{port} ({exc.strerror}); choose another --port"
        ) from exc
    return listening


# --- the user's browser ---


def tunnel_command(environment: Mapping[str, str], port: int, host: str) -> str | None:
    """Return the command that forwards the port to the user's machine, or None without ssh."""
    if "SSH_CONNECTION" not in environment:
        return None
    fields = environment["SSH_CONNECTION"].split()
    server = fields[2] if len(fields) == 4 else host
    return f"ssh -N -L {port}:{HOST}:{port} {server}"


@contextlib.contextmanager
def opened_in_browser(address: str) -> Iterator[None]:
    """Open an address in the user's browser.

    All users can read the arguments of a process, so the browser gets the name of a file, which
    only this user can read and which contains the address. The file exists during the context.
    """
    import webbrowser

    directory = os.environ.get("XDG_RUNTIME_DIR") or None
    with tempfile.TemporaryDirectory(
        prefix="symphony-ui-", dir=directory, ignore_cleanup_errors=True
    ) as name:
        page = Path(name) / "open.html"
        page.write_text(
            '<!doctype html><meta charset="utf-8"><title>symphony</title>'
            f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
            f'<a href="{escape(address)}">symphony</a>'
        )
        page.chmod(0o600)
        threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
