"""Work that is handed out: pushers and pullers. A message goes to one puller, in turns where there are several."""

from __future__ import annotations

from typing import Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.options import USUAL, Timeout
from symphony.addons.zmq.sync import Receiving, Sending


class ZmqPush(Sending):
    """Sends messages to pullers; it connects, unless ``bind=True``.

    What was sent may be on its way: it is lost where the puller dies. `ZmqSender` knows when it was received.
    """

    _kind: ClassVar[int] = sockets.PUSH
    _binds: ClassVar[bool] = False

    def send(self, message: Any, *, timeout: Timeout = USUAL) -> None:
        """Send a message, once there is room for it (``hwm``) and, where this is bound, a puller.

        Raises `ZmqTimeoutError`, `ZmqClosedError`, and `ZmqMessageError` for what the serializer cannot write.
        """
        self._send(message if self._dumps is None else self._dumps(message), timeout)


class ZmqPull(Receiving):
    """Receives what pushers send, in the order in which each sent it; it binds, unless ``bind=False``.

    It can be iterated over, until it is closed. A message of several frames, which only others send, comes frame
    by frame.
    """

    _kind: ClassVar[int] = sockets.PULL
    _binds: ClassVar[bool] = True

    def recv(self, *, timeout: Timeout = USUAL) -> Any:
        """The next message; waits for it for ``timeout`` seconds, which are the object's own unless given.

        Raises `ZmqTimeoutError`, `ZmqClosedError`, and `ZmqMessageError` for what the serializer cannot read.
        """
        raw = self._receive(timeout)
        return raw if self._loads is None else self._loads(raw)
