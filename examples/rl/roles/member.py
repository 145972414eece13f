"""What the processes of a run have in common: a name, the settings, and messages to others."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from roles import options
from roles.checks import InvalidMessage
from symphony.addons.zmq import (
    ZmqMessageError,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqSender,
    ZmqTimeoutError,
)

# A message and its reply are lost if the connection breaks. A message without a reply is therefore
# sent again after this many seconds.
REPEAT_SECONDS = 5.0


def repeated(patience: float) -> dict[str, Any]:
    """Return the options of a socket that repeats each message until a reply arrives, for about
    ``patience`` seconds.
    """
    timeout = min(REPEAT_SECONDS, patience)
    return {"timeout": timeout, "retries": math.ceil(patience / timeout) - 1}


class Log:
    """A client that sends lines to the logger. When `write` returns, the logger has received the
    line, or this process has printed it.

    If the logger does not accept a line within ``patience`` seconds, this process prints that line
    and all later lines.
    """

    def __init__(self, name: str, patience: float) -> None:
        self._name, self._connected = name, True
        self._logger = ZmqSender(service="log", serializer="json", **repeated(patience))

    def write(self, text: str) -> None:
        """Send a line to the logger. Print the line instead if the logger does not accept it."""
        if self._connected:
            try:
                self._logger.send({"name": self._name, "text": text})
            except ZmqTimeoutError:
                self._connected = False
        if not self._connected:
            print(text, flush=True)


class Member:
    """This process: its name, the settings of the run, and messages to other processes."""

    def __init__(self) -> None:
        self.name = os.environ["SYMPHONY_ROLE"]
        self.options = options.read()
        self._log: Log | None = None
        self._senders: dict[str, ZmqPush] = {}

    @property
    def number(self) -> int:
        """The number at the end of the name, such as 3 for ``agent-3``."""
        return int(self.name.rpartition("-")[2])

    def log(self, text: str) -> None:
        """Send a line to the logger."""
        if self._log is None:
            self._log = Log(self.name, self.options.patience)
        self._log.write(text)

    def measure(self, series: str, step: int, value: float) -> None:
        """Send a measurement to the recorder."""
        self.send("metrics", {"name": self.name, "series": series, "step": step, "value": value})

    def send(self, service: str, message: object) -> None:
        """Push a message to the process that binds ``service``."""
        if service not in self._senders:
            self._senders[service] = ZmqPush(
                service=service, serializer="json", timeout=self.options.patience
            )
        self._senders[service].send(message)


def messages(pull: ZmqPull | ZmqReceiver, check: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield incoming messages. Messages that cannot be read or that ``check`` refuses are reported
    and dropped. If the socket has a timeout, the iterator ends when it expires.
    """
    while True:
        try:
            message = check(pull.recv())
        except ZmqTimeoutError:
            return
        except (ZmqMessageError, InvalidMessage) as exc:
            print(f"a message was dropped: {exc}", flush=True)
        else:
            yield message
