"""Those who ask and wait for the answer, one question at a time: clients, and senders of acknowledged messages."""

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
    """One who sends a message and waits for the answer to it.

    After a failure it goes on with a fresh socket: an answer that comes late, comes to the old one, and is never taken
    for that to a later question.
    """

    _kind: ClassVar[int] = sockets.REQ
    _binds: ClassVar[bool] = False
    _own: ClassVar[tuple[str, ...]] = ("retries",)

    def __init__(self, *, retries: int = 0, **options: Unpack[Options]) -> None:
        self._retries = whole(retries, "retries")
        super().__init__(**options)

    def _ask(self, message: Any, timeout: Timeout) -> list[bytes]:
        """The frames of the answer to a message, which is sent again while there are retries left."""
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
        """Take a fresh socket. What the old one has not sent is never sent."""
        if not self._closing:
            self._socket.close(linger=0)
            self._use(self._open(again=self._address if self._place.bind else None))


class ZmqClient(Asking):
    """Asks a server; it connects, unless ``bind=True``.

    A request that has no reply after ``timeout`` seconds is sent ``retries`` times more, each with that time, and may
    so be handled more than once. Without a timeout, here or in the call, it waits, and is never sent again.
    """

    def request(self, message: Any, *, timeout: Timeout = USUAL) -> Any:
        """Send a request and return the reply.

        Raises `ZmqTimeoutError` where none came, `ZmqRemoteError` where the server answered with an error,
        `ZmqClosedError`, and `ZmqMessageError` for what the serializer cannot write or read.
        """
        return reply_of(self._ask(message, timeout), self._loads)


class ZmqSender(Asking):
    """Sends messages of which it knows that they were received; it connects, unless ``bind=True``.

    One that was not acknowledged after ``timeout`` seconds is sent ``retries`` times more, and may so be received more
    than once. Without a timeout, here or in the call, it waits, and is never sent again.
    """

    def send(self, message: Any, *, timeout: Timeout = USUAL) -> None:
        """Send a message and return when a `ZmqReceiver` has it.

        Raises `ZmqTimeoutError` where that is not known, `ZmqRemoteError` where the receiver could not read it,
        `ZmqClosedError`, and `ZmqMessageError` for what the serializer cannot write.
        """
        reply_of(self._ask(message, timeout), None)
