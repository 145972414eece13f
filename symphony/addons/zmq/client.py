"""The classes that send a message and wait for its reply: clients, and senders of acknowledged
messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.errors import ZmqTimeoutError
from symphony.addons.zmq.options import USUAL, Timeout, whole
from symphony.addons.zmq.protocol import not_bytes, reply_of
from symphony.addons.zmq.sockets import NOW, READABLE, WRITABLE, Fault
from symphony.addons.zmq.sync import Peer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.addons.zmq.options import Options


class Asking(Peer):
    """An end that sends a message and waits for its reply.

    After a failure it uses a new socket, so that a late reply is never taken for the reply to a
    later message.
    """

    _kind: ClassVar[int] = sockets.REQ
    _binds: ClassVar[bool] = False
    _own: ClassVar[tuple[str, ...]] = ("retries",)

    def __init__(self, *, retries: int = 0, **options: Unpack[Options]) -> None:
        self._retries = whole(retries, "retries")
        super().__init__(**options)

    def _ask(self, message: Any, timeout: Timeout) -> list[bytes]:
        """Return the frames of the reply to a message, which is sent again while there are
        retries left.
        """
        data = message if self._dumps is None else self._dumps(message)
        for _ in range(self._retries):
            try:
                return self._round_trip(data, timeout)
            except ZmqTimeoutError:
                continue
        return self._round_trip(data, timeout)

    def _round_trip(self, data: Any, timeout: Timeout) -> list[bytes]:
        flags = self._flags if timeout is USUAL else NOW
        deadline = self._deadline(timeout)
        if self._busy:
            raise self._taken()
        self._busy = True
        try:
            if self._closing:
                raise self._gone()
            self._say(data, deadline)
            return self._heard(flags, deadline)
        except (TypeError, BufferError) as exc:
            raise not_bytes(data, self._dumps) from exc
        except Fault as exc:
            self._renew()
            raise sockets.failure(self._place, exc) from exc
        except BaseException:
            self._renew()
            raise
        finally:
            self._busy = False
            if self._closing:
                self._finish()

    def _say(self, data: Any, deadline: float | None) -> None:
        try:
            self._put(data, NOW)
        except Fault as exc:
            if not sockets.is_later(exc):
                raise
            self._wait(WRITABLE, deadline, "nobody was there to ask")
            self._put(data, NOW)

    def _heard(self, flags: int, deadline: float | None) -> list[bytes]:
        try:
            return sockets.frames(self._take, flags)
        except Fault as exc:
            if not sockets.is_later(exc):
                raise
            self._wait(READABLE, deadline, "no answer came")
            return sockets.frames(self._take, NOW)

    def _renew(self) -> None:
        """Replace the socket. Messages that the old one has not sent are discarded."""
        if not self._closing:
            self._socket.close(linger=0)
            self._use(self._open(again=self._address if self._place.bind else None))


class ZmqClient(Asking):
    """Sends requests to a server. It connects, unless ``bind=True``.

    A request without a reply after ``timeout`` seconds is sent again, ``retries`` times, with the
    same timeout each, so the server may handle it more than once. Without a timeout, in the
    constructor or in the call, it waits indefinitely and sends the request once.
    """

    def request(self, message: Any, *, timeout: Timeout = USUAL) -> Any:
        """Send a request and return the reply.

        Raises `ZmqTimeoutError` if there is no reply, `ZmqRemoteError` if the server replies with
        an error, `ZmqClosedError`, and `ZmqMessageError` if the serializer cannot write or read a
        message.
        """
        return reply_of(self._ask(message, timeout), self._loads)


class ZmqSender(Asking):
    """Sends messages and waits for their acknowledgement. It connects, unless ``bind=True``.

    A message without an acknowledgement after ``timeout`` seconds is sent again, ``retries`` times,
    so it may be received more than once. Without a timeout, in the constructor or in the call, it
    waits indefinitely and sends the message once.
    """

    def send(self, message: Any, *, timeout: Timeout = USUAL) -> None:
        """Send a message, and return when a `ZmqReceiver` has received it.

        Raises `ZmqTimeoutError` if there is no acknowledgement, `ZmqRemoteError` if the receiver
        cannot read the message, `ZmqClosedError`, and `ZmqMessageError` if the serializer cannot
        write it.
        """
        reply_of(self._ask(message, timeout), None)
