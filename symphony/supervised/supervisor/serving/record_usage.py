"""Sampling the resource use in a supervisor, for the record of the run and for clients.

A supervisor samples once a second while the experiment records its resource use, or while a client
receives samples. Otherwise, it does nothing. On one machine, the program that shows samples takes
them itself. A client of a supervisor on another machine sends the request ``usage`` and then
receives one line of JSON for each sample, until it closes the connection.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from symphony.archive.archived_usage import USAGE_FILE, UsageLog
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.event_loop import EventLoop, receive
from symphony.supervised.usage.sampler import FIRST_INTERVAL_SECONDS
from symphony.support.data_classes import dataclass, field

if TYPE_CHECKING:
    from symphony.usage import ExperimentUsage

INTERVAL_SECONDS = 1.0
# The pause before data is sent again that could not be sent.
_RETRY_SECONDS = 0.02
_RECEIVE_BYTES = 4096

OnSample = Callable[["ExperimentUsage"], None]
# A function that samples the running processes and calls another function with the sample.
Sample = Callable[[OnSample], None]


@dataclass(slots=True, eq=False)
class _Client:
    socket: socket.socket
    waiting: bytearray = field(default_factory=bytearray)


class UsageMonitor:
    """The samples of one supervisor."""

    def __init__(self, loop: EventLoop, run: RunDirectory, sample: Sample) -> None:
        self._loop = loop
        self._run = run
        self._sample = sample
        self._log: UsageLog | None = None
        self._clients: list[_Client] = []
        self._is_sampling = False

    def set_recording(self, is_recording: bool) -> None:
        """Begin or stop recording samples."""
        if not is_recording:
            self._log = None
        elif self._log is None:
            self._log = UsageLog(self._run.file(USAGE_FILE))
            self._start()

    def join(self, client_socket: socket.socket) -> None:
        """Send samples to a client from now on."""
        client = _Client(client_socket)
        self._clients.append(client)
        self._loop.watch(client_socket.fileno(), lambda: self._receive(client))
        self._start()

    def _receive(self, client: _Client) -> None:
        """Notice that a client has closed its connection. What it sends is ignored."""
        data = receive(client.socket, _RECEIVE_BYTES)
        if data is None:
            return
        if not data:
            self._disconnect(client)

    def _disconnect(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._loop.unwatch(client.socket.fileno())
            client.socket.close()

    def _start(self) -> None:
        if self._is_sampling:
            return
        self._is_sampling = True
        # The CPU use is measured between two samples, so the first one is not used.
        self._loop.after(FIRST_INTERVAL_SECONDS, self._take_sample)
        self._sample(lambda _: None)

    def _take_sample(self) -> None:
        if self._log is None and not self._clients:
            self._is_sampling = False
            return
        self._loop.after(INTERVAL_SECONDS, self._take_sample)
        self._sample(self._handle)

    def _handle(self, sample: ExperimentUsage) -> None:
        if self._log is not None and sample.processes:
            # A sample that cannot be written because the disk is full is lost.
            with contextlib.suppress(OSError):
                self._log.append(sample)
        if self._clients:
            line = json.dumps(sample.to_dict()).encode() + b"\n"
            for client in list(self._clients):
                # A client that reads too slowly misses samples.
                if not client.waiting:
                    client.waiting += line
                    self._send(client)

    def _send(self, client: _Client) -> None:
        if client not in self._clients:
            return
        try:
            while client.waiting:
                del client.waiting[: client.socket.send(client.waiting, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            self._loop.after(_RETRY_SECONDS, lambda: self._send(client))
        except OSError:
            self._disconnect(client)
