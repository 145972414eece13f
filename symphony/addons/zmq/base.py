"""The state of one end of a connection, for threads and event loops: its address, and whether it is
closed.
"""

from __future__ import annotations

import abc
import threading
import warnings
from typing import TYPE_CHECKING, ClassVar

from symphony.addons.zmq.errors import ZmqClosedError, ZmqError, ZmqOrderError

if TYPE_CHECKING:
    from symphony.addons.zmq.endpoint import SocketAddress
    from symphony.addons.zmq.options import Setup


class SocketOwner(abc.ABC):
    """One end of a connection. It counts as closed until it is opened, because until then no socket
    needs to be closed.
    """

    _kind: ClassVar[int]
    _binds: ClassVar[bool]
    # The keyword arguments of this class in addition to those of all classes.
    _own: ClassVar[tuple[str, ...]] = ()
    _closing = True
    _inherited = False
    _setup: Setup
    _address: str
    _closed_event: threading.Event

    @property
    def address(self) -> str:
        """The address to which this socket is bound or connected, in ZeroMQ notation:
        ``tcp://127.0.0.1:7000``.
        """
        return self._address

    @property
    def closed(self) -> bool:
        """Whether this object is closed."""
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
        return self._closed_event.wait(timeout)

    def disown(self) -> None:
        """Mark this object as closed in a forked child, and leave the socket to the parent. Call
        this method after a fork, in the only thread of the child.

        The locks are replaced, because another thread could have held them during the fork.
        """
        self._closing = self._inherited = True
        self._closed_event = threading.Event()
        self._closed_event.set()

    def __del__(self) -> None:
        """Close an object that the program did not close, and issue a warning, because the program
        waits for every open socket when it exits.
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

    def _no_request_error(self) -> ZmqError:
        if self._closing:
            return self._closed_error()
        return ZmqOrderError(
            f"{self._socket_address.what}: recv and send alternate, "
            "and no request waits for a reply"
        )
