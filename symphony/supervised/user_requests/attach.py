"""Join the terminal of a process with the setting ``tty``, and leave it."""

from __future__ import annotations

import contextlib
import os
import select
import socket

from symphony.errors import Unsupported
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.terminal_messages import INPUT, SIZE, SIZE_FORMAT, encode_message
from symphony.supervised.user_requests.requests import SupervisorLink, open_channel
from symphony.support.raw_terminal import (
    DetachKeys,
    has_terminal,
    joined_message,
    left_message,
    raw_mode,
    read_available,
    watched_size,
    write_all,
)

_RECEIVE_BYTES = 1 << 16


def attach(run: RunDirectory, process: str, link: SupervisorLink) -> None:
    """Connect this program's terminal to that of a process until the user leaves it.

    ``run`` is pinned. The function also returns when the process exits. Raises BackendError if the
    supervisor cannot be reached or the process is not running, and Unsupported if this program has
    no terminal.
    """
    if not has_terminal():
        raise Unsupported(
            f"attach requires a terminal; without one, symphony logs -f {run.name} {process} "
            "follows the output"
        )
    request = {"request": "attach", "names": [process]}
    with open_channel(run, request, link=link) as (channel, first):
        write_all(2, joined_message(process))
        with raw_mode(0), watched_size() as resized:
            # A program that uses the whole screen draws it again when the size changes.
            _send_size(channel, is_first=True)
            write_all(1, first)
            _relay(channel, resized)
        write_all(2, left_message(process))


def _relay(channel: socket.socket, resized: int) -> None:
    """Relay keystrokes, output and sizes until the process exits or the user leaves it."""
    detach_keys = DetachKeys()
    while True:
        ready, _, _ = select.select([0, channel.fileno(), resized], [], [])
        if channel.fileno() in ready:
            try:
                output = channel.recv(_RECEIVE_BYTES)
            except ConnectionError:
                return
            if not output:
                return
            write_all(1, output)
        if resized in ready:
            os.read(resized, _RECEIVE_BYTES)
            _send_size(channel)
        if 0 in ready:
            typed = read_available(0)
            keys = detach_keys.filter(typed)
            if keys:
                _send(channel, INPUT, keys)
            if detach_keys.pressed or not typed:
                return


def _send_size(channel: socket.socket, *, is_first: bool = False) -> None:
    size = os.get_terminal_size(1)
    if is_first and size.lines > 1:
        _send(channel, SIZE, SIZE_FORMAT.pack(size.lines - 1, size.columns))
    _send(channel, SIZE, SIZE_FORMAT.pack(size.lines, size.columns))


def _send(channel: socket.socket, kind: bytes, content: bytes) -> None:
    # If the process has exited, the end of the connection is received next.
    with contextlib.suppress(ConnectionError):
        channel.sendall(encode_message(kind, content), socket.MSG_NOSIGNAL)
