"""Distributed work: pushers and pullers. Each message goes to one puller, in turn if there are
several.
"""

from __future__ import annotations

from typing import Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout
from symphony.addons.zmq.sync import SyncReceiver, SyncSender


class ZmqPush(SyncSender):
    """Sends messages to pullers. It connects, unless ``bind=True``.

    A message may still be in transit after `send` returns. It is lost if the puller exits.
    `ZmqSender` waits for an acknowledgement.
    """

    _kind: ClassVar[int] = sockets.PUSH
    _binds: ClassVar[bool] = False

    def send(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> None:
        """Send a message, as soon as there is room for it (``hwm``) and, if this is bound, a puller
        is connected.

        Raises `ZmqTimeoutError`, `ZmqClosedError`, and `ZmqMessageError` if the serializer cannot
        write the message.
        """
        self._send(message if self._dumps is None else self._dumps(message), timeout)


class ZmqPull(SyncReceiver):
    """Receives the messages of pushers, in the order in which each pusher sent them. It binds,
    unless ``bind=False``.

    It can be iterated over until it is closed. A message of several frames, which only other
    programs send, is returned frame by frame.
    """

    _kind: ClassVar[int] = sockets.PULL
    _binds: ClassVar[bool] = True

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next message. Waits for ``timeout`` seconds, by default the timeout of the
        object.

        Raises `ZmqTimeoutError`, `ZmqClosedError`, and `ZmqMessageError` if the serializer cannot
        read the message.
        """
        raw = self._receive(timeout)
        return raw if self._loads is None else self._loads(raw)
