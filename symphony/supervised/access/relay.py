"""Relay the connections to one port of this machine to another port."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from symphony.errors import BackendError

_HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16


class Relay:
    """A relay from the local port ``port`` to ``target``, which runs in threads until `close`.

    ``connect`` returns a new connection to ``target``, by default a direct one. If ``target``
    cannot be reached, ``on_error`` is called with a message. ``on_idle`` is called, in another
    thread, when a client that has sent data has disconnected and no other one is connected. Raises
    BackendError if the port is in use.
    """

    def __init__(
        self,
        port: int,
        target: tuple[str, int],
        on_error: Callable[[str], None] | None,
        *,
        connect: Callable[[], socket.socket] | None = None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._connect = connect or (lambda: socket.create_connection(target))
        self._on_error = on_error
        self._on_idle = on_idle
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        try:
            self._server = socket.create_server((_HOST, port))
        except (OSError, OverflowError) as exc:
            reason = getattr(exc, "strerror", None) or exc
            raise BackendError(
                f"cannot listen on local port {port}: {reason}; choose another port"
            ) from exc
        self.address = f"{_HOST}:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True, name="relay").start()

    @property
    def is_idle(self) -> bool:
        """True if no client is connected."""
        with self._lock:
            return not self._connections

    def close(self) -> None:
        """Close the port and all connections."""
        with contextlib.suppress(OSError):
            # A thread that waits in accept() notices this, but does not notice a close.
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = self._connect()
            except OSError as exc:
                if self._on_error is not None:
                    host, port = self._target
                    self._on_error(f"cannot connect to {host}:{port}: {exc.strerror}")
                return
            with server, self._registered(client), self._registered(server):
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                has_sent = _copy(client, server)
                back.join()
            if has_sent and self.is_idle:
                self._on_idle()

    @contextlib.contextmanager
    def _registered(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)


def _copy(source: socket.socket, target: socket.socket) -> bool:
    """Copy data until the source ends its direction of the connection.

    Return whether there was any data.
    """
    has_data = False
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            has_data = True
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    return has_data
