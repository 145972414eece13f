"""Distributing work from pushers to pullers. Each message goes to one puller. If a pusher has
several pullers, they receive its messages in turn.
"""

from __future__ import annotations

from typing import Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout
from symphony.addons.zmq.sync import SyncReceiver, SyncSender


class ZmqPush(SyncSender):
    """A socket that sends messages to pullers. The socket connects, unless ``bind=True`` is set.

    When `send` returns, the message can still be in transit. It is lost if the puller then exits.
    Use `ZmqSender` to wait for an acknowledgement.
    """

    _kind: ClassVar[int] = sockets.PUSH
    _binds: ClassVar[bool] = False
    _all_replicas: ClassVar[bool] = True

    def send(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> None:
        """Send a message as soon as the queue, whose size is ``hwm``, has room. A socket that binds
        also waits until a puller is connected.

        Raises `ZmqTimeoutError` if the message cannot be sent in time, `ZmqClosedError` if this
        object is closed, and `ZmqMessageError` if the serializer cannot write the message.
        """
        self._send(message if self._dumps is None else self._dumps(message), timeout)


class ZmqPull(SyncReceiver):
    """A socket that receives messages from pushers. Messages from the same pusher are received in
    the order in which they were sent. The socket binds, unless ``bind=False`` is set.

    Iterating over the socket yields the received messages until the socket is closed. Messages that
    the serializer cannot read are logged and dropped. If another program sends a message that
    consists of several frames, each frame is returned as a separate message.
    """

    _kind: ClassVar[int] = sockets.PULL
    _binds: ClassVar[bool] = True
    _all_replicas: ClassVar[bool] = True

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next message. Wait at most ``timeout`` seconds for it; the default is this
        object's timeout.

        Raises `ZmqTimeoutError` if no message arrives in time, `ZmqClosedError` if this object is
        closed, and `ZmqMessageError` if the serializer cannot read the message.
        """
        raw = self._receive(timeout)
        return raw if self._loads is None else self._loads(raw)
