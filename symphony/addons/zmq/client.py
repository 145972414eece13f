"""The classes that send messages and wait for a reply to each of them: clients, and senders of
acknowledged messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.errors import ZmqTimeoutError
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout, whole_number
from symphony.addons.zmq.protocol import not_bytes_error, parse_reply
from symphony.addons.zmq.sockets import NOW, READABLE, WRITABLE, Fault
from symphony.addons.zmq.sync import SyncSocket

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.addons.zmq.options import Options


class RequestSender(SyncSocket):
    """A socket that sends messages and waits for a reply to each of them.

    After a failure, the socket is replaced, so that a late reply is never treated as the reply to a
    later message.
    """

    _kind: ClassVar[int] = sockets.REQ
    _binds: ClassVar[bool] = False
    _own: ClassVar[tuple[str, ...]] = ("retries",)

    def __init__(self, *, retries: int = 0, **options: Unpack[Options]) -> None:
        self._retries = whole_number(retries, "retries")
        super().__init__(**options)

    def _request_frames(self, message: Any, timeout: Timeout) -> list[bytes]:
        """Send a message and return the frames of the reply. After each timeout, the message is
        sent again as long as retries remain.
        """
        data = message if self._dumps is None else self._dumps(message)
        for _ in range(self._retries):
            try:
                return self._round_trip(data, timeout)
            except ZmqTimeoutError:
                continue
        return self._round_trip(data, timeout)

    def _round_trip(self, data: Any, timeout: Timeout) -> list[bytes]:
        flags = self._flags if timeout is OWN_TIMEOUT else NOW
        deadline = self._deadline(timeout)
        if self._busy:
            raise self._busy_error()
        self._busy = True
        try:
            if self._closing:
                raise self._closed_error()
            self._send_request(data, deadline)
            return self._receive_frames(flags, deadline)
        except (TypeError, BufferError) as exc:
            raise not_bytes_error(data, self._dumps) from exc
        except Fault as exc:
            self._renew()
            raise sockets.socket_error(self._socket_address, exc) from exc
        except BaseException:
            self._renew()
            raise
        finally:
            self._busy = False
            if self._closing:
                self._finish()

    def _send_request(self, data: Any, deadline: float | None) -> None:
        try:
            self._put(data, NOW)
            return
        except Fault as exc:
            if not sockets.would_block(exc):
                raise
        self._call_when_ready(
            lambda flags: self._put(data, flags), WRITABLE, deadline, "no server was connected"
        )

    def _receive_frames(self, flags: int, deadline: float | None) -> list[bytes]:
        try:
            return sockets.frames(self._take, flags)
        except Fault as exc:
            if not sockets.would_block(exc):
                raise
        frames: list[bytes] = self._call_when_ready(
            lambda flags: sockets.frames(self._take, flags), READABLE, deadline, "no answer came"
        )
        return frames

    def _renew(self) -> None:
        """Replace the socket. Messages that the old socket has not sent yet are discarded."""
        if not self._closing:
            self._socket.close(linger=0)
            self._use(self._open(again=self._address if self._socket_address.bind else None))


class ZmqClient(RequestSender):
    """A client that sends requests to a server and waits for the replies. The socket connects,
    unless ``bind=True`` is set.

    If no reply to a request arrives within ``timeout`` seconds, the request is sent again up to
    ``retries`` times, each time with the same timeout. The server can therefore receive a request
    more than once. If neither the constructor nor the call sets a timeout, the client sends the
    request once and waits indefinitely.
    """

    def request(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Send a request and return the reply.

        Raises `ZmqTimeoutError` if no reply arrives in time, `ZmqRemoteError` if the server replies
        with an error, `ZmqClosedError` if the client is closed, and `ZmqMessageError` if the
        serializer cannot write the request or read the reply.
        """
        return parse_reply(self._request_frames(message, timeout), self._loads)


class ZmqSender(RequestSender):
    """A sender that waits until each of its messages is acknowledged. The socket connects, unless
    ``bind=True`` is set.

    If no acknowledgement of a message arrives within ``timeout`` seconds, the message is sent again
    up to ``retries`` times, each time with the same timeout. The receiver can therefore receive a
    message more than once. If neither the constructor nor the call sets a timeout, the sender sends
    the message once and waits indefinitely.
    """

    def send(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> None:
        """Send a message, and return when a `ZmqReceiver` has acknowledged it.

        Raises `ZmqTimeoutError` if no acknowledgement arrives in time, `ZmqRemoteError` if the
        receiver cannot read the message, `ZmqClosedError` if the sender is closed, and
        `ZmqMessageError` if the serializer cannot write the message.
        """
        parse_reply(self._request_frames(message, timeout), None)
