"""Publishing under topics. A message goes to every subscriber of its topic that is connected by then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import protocol, sockets
from symphony.addons.zmq.options import USUAL, Timeout
from symphony.addons.zmq.sockets import MORE
from symphony.addons.zmq.sync import Receiving, Sending

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.addons.zmq.options import Options
    from symphony.addons.zmq.sockets import Socket


class ZmqPub(Sending):
    """Publishes messages under topics; it binds, unless ``bind=False``.

    It never waits: what a subscriber is too slow for (``hwm``) is lost to it, and so is what came before it.
    """

    _kind: ClassVar[int] = sockets.PUB
    _binds: ClassVar[bool] = True

    def send(self, topic: str, message: Any) -> None:
        """Publish a message. Raises `ZmqClosedError`, `ZmqMessageError`, and `ZmqOptionError` for the topic."""
        self._send(protocol.publication(topic, message, self._dumps), None)

    def _use(self, socket: Socket) -> None:
        super()._use(socket)
        put = self._put

        def put_both(frames: tuple[bytes, Any], flags: int) -> None:
            put(frames[0], flags | MORE)
            put(frames[1], flags)

        self._put = put_both


class ZmqSub(Receiving):
    """Receives what is published under topics; it connects, unless ``bind=True``.

    ``topics`` is one or several beginnings of topics: ``"a"`` stands for ``"a"``, ``"ab"`` and ``"a/b"``; ``""``,
    which it is unless given, for all. `recv` returns the topic and the message.
    """

    _kind: ClassVar[int] = sockets.SUB
    _binds: ClassVar[bool] = False
    _own: ClassVar[tuple[str, ...]] = ("topics",)

    def __init__(self, *, topics: str | Iterable[str] = "", **options: Unpack[Options]) -> None:
        self._topics = protocol.encoded_topics(topics)
        super().__init__(**options)

    def recv(self, *, timeout: Timeout = USUAL) -> tuple[str, Any]:
        """The topic and the message of what was published next; the rest is as with `ZmqPull`."""
        return protocol.published(self._receive(timeout), self._loads)

    def subscribe(self, topic: str) -> None:
        """Receive what is published under a topic from now on; the publisher learns of it in a moment."""
        self._change(topic, on=True)

    def unsubscribe(self, topic: str) -> None:
        """End what `subscribe` or ``topics`` began with the same text."""
        self._change(topic, on=False)

    def _change(self, topic: str, *, on: bool) -> None:
        if self._closing:
            raise self._gone()
        if self._busy:
            raise self._taken()
        sockets.subscribe(self._socket, protocol.encoded(topic), on=on)

    def _open(self, *, again: str | None = None) -> Socket:
        return sockets.opened(self._kind, self._setup, topics=self._topics, again=again)

    def _use(self, socket: Socket) -> None:
        super()._use(socket)
        take: Any = socket.recv
        self._take = lambda flags: sockets.frames(take, flags)
