"""Distributing work from pushers to pullers. Each message goes to one puller. If there are several
pullers, they receive messages in turn.
"""

from __future__ import annotations

from typing import Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout
from symphony.addons.zmq.sync import SyncReceiver, SyncSender


class ZmqPush(SyncSender):
    """Sends messages to pullers. The socket connects, unless ``bind=True``.

    A message can still be in transit after `send` returns. The message is lost if the puller exits.
    `ZmqSender` waits for an acknowledgement.
    """

    _kind: ClassVar[int] = sockets.PUSH
    _binds: ClassVar[bool] = False

    def send(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> None:
        """Send a message as soon as the queue (``hwm``) has room. If this socket is bound, also
        wait until a puller is connected.

        Raises `ZmqTimeoutError` if the message cannot be sent in time, `ZmqClosedError` if this
        object is closed, and `ZmqMessageError` if the serializer cannot write the message.
        """
        self._send(message if self._dumps is None else self._dumps(message), timeout)


class ZmqPull(SyncReceiver):
    """Receives the messages of pushers, in the order in which each pusher sent them. The socket
    binds, unless ``bind=False``.

    The object can be iterated over until it is closed. If another program sends a message of
    several frames, each frame is returned separately.
    """

    _kind: ClassVar[int] = sockets.PULL
    _binds: ClassVar[bool] = True

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next message. Wait for at most ``timeout`` seconds, which defaults to the
        timeout of the object.

        Raises `ZmqTimeoutError` if no message arrives, `ZmqClosedError` if this object is closed,
        and `ZmqMessageError` if the serializer cannot read the message.
        """
        raw = self._receive(timeout)
        return raw if self._loads is None else self._loads(raw)
