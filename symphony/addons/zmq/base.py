"""The base class of the synchronous and the asynchronous socket classes. It provides the address of
one end of a connection, and records whether that end is closed.
"""

from __future__ import annotations

import abc
import logging
import threading
import warnings
from typing import TYPE_CHECKING, ClassVar

from symphony.addons.zmq.errors import (
    ZmqClosedError,
    ZmqError,
    ZmqMessageError,
    ZmqOrderError,
)
from symphony.addons.zmq.options import seconds

if TYPE_CHECKING:
    from symphony.addons.zmq.endpoint import SocketAddress
    from symphony.addons.zmq.options import Setup

_log = logging.getLogger("symphony.zmq")


class SocketOwner(abc.ABC):
    """One end of a connection. The object counts as closed until its socket is open, because there
    is nothing to close before then.
    """

    _kind: ClassVar[int]
    _binds: ClassVar[bool]
    # The keyword arguments that only this class accepts, in addition to those that all classes
    # accept.
    _own: ClassVar[tuple[str, ...]] = ()
    # True if the socket connects to all replicas of a replicated service. The sockets for requests
    # and replies connect to one, because a request that is repeated must reach the same server.
    _all_replicas: ClassVar[bool] = False
    _closing = True
    _inherited = False
    _setup: Setup
    _address: str
    _closed_event: threading.Event

    @property
    def address(self) -> str:
        """The address to which this socket is bound or connected, in ZeroMQ notation, such as
        ``tcp://127.0.0.1:7000``.
        """
        return self._address

    @property
    def closed(self) -> bool:
        """True if this object is closed."""
        return self._closing

    @property
    def _socket_address(self) -> SocketAddress:
        return self._setup.place

    def __repr__(self) -> str:
        if self._closing:
            state = "closed"
        else:
            state = "bound" if self._socket_address.bind else "connected"
        return f"{type(self).__name__}({self._socket_address.what!r}, {state}: {self._address})"

    @abc.abstractmethod
    def close(self) -> None:
        """Close the socket immediately."""

    def wait_closed(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the socket to close, and return whether it is
        closed.
        """
        allowed = seconds(timeout, "timeout")
        return self._closed_event.wait(
            None if allowed is None else min(allowed, threading.TIMEOUT_MAX)
        )

    def disown(self) -> None:
        """In a forked child, mark this object as closed, and leave the socket to the parent
        process. Call this method immediately after the fork, when the child has only one thread.

        Locks are replaced, because another thread could have held them during the fork.
        """
        self._closing = self._inherited = True
        self._closed_event = threading.Event()
        self._closed_event.set()

    def __del__(self) -> None:
        """If the program has not closed this object, close it and issue a warning. An open socket
        could delay the program's exit.
        """
        if not self._closing:
            self.close()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def _closed_error(self) -> ZmqError:
        this = f"{self._socket_address.what}: this {type(self).__name__}"
        if self._inherited:
            return ZmqOrderError(
                f"{this} was opened before the fork and belongs to the parent; open another one "
                "after the fork"
            )
        return ZmqClosedError(f"{this} was closed")

    def _log_dropped(self, exc: ZmqMessageError) -> None:
        _log.error("%s: a message was dropped: %s", self._socket_address.what, exc)

    def _no_request_error(self) -> ZmqError:
        if self._closing:
            return self._closed_error()
        return ZmqOrderError(
            f"{self._socket_address.what}: recv and send alternate, "
            "and no request waits for a reply"
        )
