"""Publishing messages under topics. A message goes to every subscriber that has subscribed to the
message's topic and is connected when the message is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import protocol, sockets
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout
from symphony.addons.zmq.sockets import MORE
from symphony.addons.zmq.sync import SyncReceiver, SyncSender

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.addons.zmq.options import Options
    from symphony.addons.zmq.sockets import Socket


class ZmqPub(SyncSender):
    """A socket that publishes messages under topics. The socket binds, unless ``bind=False`` is
    set.

    Publishing never waits. A subscriber misses messages that are sent before it has connected. If
    messages are published faster than the subscriber receives them, it also misses those for which
    the queue, whose size is ``hwm``, has no room.
    """

    _kind: ClassVar[int] = sockets.PUB
    _binds: ClassVar[bool] = True
    _all_replicas: ClassVar[bool] = True

    def send(self, topic: str, message: Any) -> None:
        """Publish a message under ``topic``. Raises `ZmqClosedError` if this object is closed,
        `ZmqMessageError` if the message cannot be converted to bytes, and `ZmqOptionError` if the
        topic is invalid.
        """
        self._send(protocol.publication_frames(topic, message, self._dumps), None)

    def _use(self, socket: Socket) -> None:
        super()._use(socket)
        put = self._put

        def put_both(frames: tuple[bytes, Any], flags: int) -> None:
            put(frames[0], flags | MORE)
            put(frames[1], flags)

        self._put = put_both


class ZmqSub(SyncReceiver):
    """A socket that receives messages with matching topics. The socket connects, unless
    ``bind=True`` is set.

    ``topics`` is one topic prefix or several. For example, ``"a"`` matches ``"a"``, ``"ab"`` and
    ``"a/b"``. The default ``""`` matches every topic. `recv` returns the topic and the message.
    """

    _kind: ClassVar[int] = sockets.SUB
    _binds: ClassVar[bool] = False
    _all_replicas: ClassVar[bool] = True
    _own: ClassVar[tuple[str, ...]] = ("topics",)

    def __init__(self, *, topics: str | Iterable[str] = "", **options: Unpack[Options]) -> None:
        self._topics = protocol.encode_topics(topics)
        super().__init__(**options)

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> tuple[str, Any]:
        """Return the topic and the message of the next publication. In all other respects, this
        method and the iteration over the socket work as in `ZmqPull`.
        """
        return protocol.parse_publication(self._receive(timeout), self._loads)

    def subscribe(self, topic: str) -> None:
        """Subscribe to a topic prefix. The publisher receives the subscription a little later."""
        self._change(topic, on=True)

    def unsubscribe(self, topic: str) -> None:
        """Cancel a subscription to ``topic`` that was made with `subscribe` or ``topics``."""
        self._change(topic, on=False)

    def _change(self, topic: str, *, on: bool) -> None:
        if self._closing:
            raise self._closed_error()
        if self._busy:
            raise self._busy_error()
        sockets.subscribe(self._socket, protocol.encode_topic(topic), on=on)

    def _open(self, *, again: str | None = None) -> Socket:
        return sockets.open_socket(self._kind, self._setup, topics=self._topics, again=again)

    def _use(self, socket: Socket) -> None:
        super()._use(socket)
        take: Any = socket.recv
        self._take = lambda flags: sockets.frames(take, flags)
