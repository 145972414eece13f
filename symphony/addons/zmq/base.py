"""What every end of a conversation knows of itself, in threads and event loops: where it is, and whether it is over."""

from __future__ import annotations

import abc
import threading
import warnings
from typing import TYPE_CHECKING, ClassVar

from symphony.addons.zmq.errors import ZmqClosedError, ZmqError, ZmqOrderError

if TYPE_CHECKING:
    from symphony.addons.zmq.endpoint import Place
    from symphony.addons.zmq.options import Setup


class End(abc.ABC):
    """One end of a conversation. Until it is opened it counts as closed: there is nothing to close."""

    _kind: ClassVar[int]
    _binds: ClassVar[bool]
    # The keywords of this class beside those that all have.
    _own: ClassVar[tuple[str, ...]] = ()
    _closing = True
    _inherited = False
    _setup: Setup
    _address: str
    _ended: threading.Event

    @property
    def address(self) -> str:
        """Where this is bound or connected, as ZeroMQ writes it: ``tcp://127.0.0.1:7000``."""
        return self._address

    @property
    def closed(self) -> bool:
        """Whether this was closed."""
        return self._closing

    @property
    def _place(self) -> Place:
        return self._setup.place

    def __repr__(self) -> str:
        how = "closed" if self._closing else "bound" if self._place.bind else "connected"
        return f"{type(self).__name__}({self._place.what!r}, {how}: {self._address})"

    @abc.abstractmethod
    def close(self) -> None:
        """Close at once."""

    def wait_closed(self, timeout: float) -> bool:
        """Whether the socket is closed, after at most ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def disown(self) -> None:
        """Be closed for a forked child, and leave the socket to the parent. For the one thread that a fork leaves.

        Locks are made anew: another thread may have held them when it came to the fork.
        """
        self._closing = self._inherited = True
        self._ended = threading.Event()
        self._ended.set()

    def __del__(self) -> None:
        """Close what was forgotten, and say so: the end of the program waits for every open socket."""
        if not self._closing:
            self.close()
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)

    def _gone(self) -> ZmqError:
        this = f"{self._place.what}: this {type(self).__name__}"
        if self._inherited:
            return ZmqOrderError(
                f"{this} was opened before the fork and is the parent's; open another after the fork"
            )
        return ZmqClosedError(f"{this} was closed")

    def _unasked(self) -> ZmqError:
        if self._closing:
            return self._gone()
        return ZmqOrderError(
            f"{self._place.what}: recv and send alternate, and no request waits for an answer"
        )
