"""The socket in the run directory at which the supervisor accepts requests.

Each line in either direction is a JSON object; see
`symphony.supervised.supervisor.serving.request_server`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from symphony.supervised.record.directory import RunDirectory

_NAME = "control"
_MODE = 0o600
_BACKLOG = 64

# The maximum length of a line in bytes. It has space for the names of all processes of the largest
# experiments.
MAX_LINE_BYTES = 4 << 20

# The longest grace period of a request, in seconds. Longer times cannot be represented in the time
# functions of the operating system.
MAX_GRACE_SECONDS = 1e9


def listen(run: RunDirectory) -> socket.socket:
    """Create the socket, and return it in non-blocking mode.

    Only this user can connect to it. The socket of a killed supervisor is replaced. Raises OSError
    if the file system does not support sockets.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file receives the mode of the descriptor, so it never has another mode.
        os.fchmod(server.fileno(), _MODE)
        with _address(run) as address:
            _bind(server, address)
        server.listen(_BACKLOG)
        server.setblocking(False)
    except BaseException:
        server.close()
        raise
    return server


def _bind(server: socket.socket, address: str) -> None:
    try:
        server.bind(address)
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
        Path(address).unlink()
        server.bind(address)


def connect(run: RunDirectory) -> socket.socket:
    """Return a connection to the supervisor.

    Raises OSError if there is no socket, or if no supervisor accepts connections at it.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(run) as address:
            client.connect(address)
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def _address(run: RunDirectory) -> Iterator[str]:
    """Yield a path of the socket that is valid in this process while the block runs.

    The path of the run directory can be longer than the 107 characters that the address of a socket
    can have.
    """
    directory = os.open(run.file("."), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{_NAME}"
    finally:
        os.close(directory)
