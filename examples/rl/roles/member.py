"""A process's membership in the run: the process enrols with the learner, is notified when the run
is over, and reports to the learner that it is leaving.

Only the learner knows when the run is over. It publishes the run's phase under the topic ``phase``
several times a second. Late subscribers therefore receive the phase as well, and a subscriber that
receives nothing for a long time can conclude that the learner has exited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from roles import options
from roles.checks import InvalidMessage
from symphony.addons.zmq import (
    ZmqClient,
    ZmqClosedError,
    ZmqMessageError,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqSender,
    ZmqSub,
    ZmqTimeoutError,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# The phases of a run. Workers leave when the run is over. When all workers have left, the run is
# closing, and the servers leave. Collectors leave last, because the servers still send them
# messages while the run is closing.
RUNNING, OVER, CLOSING, LAST, FAILED = "running", "over", "closing", "last", "failed"
PHASE = "phase"
# The interval in seconds at which the learner publishes the phase. Processes that wait for messages
# check at the same interval whether the run is over or closing.
BEAT = 0.2


class Log:
    """A client that sends lines to the logger. When `write` returns, the logger has received the
    line, or this process has printed it.

    If the logger does not accept a line within ``patience`` seconds, this process prints that line
    and all later lines.
    """

    def __init__(self, name: str, patience: float) -> None:
        self._name, self._connected = name, True
        self._logger = ZmqSender(service="log", serializer="json", timeout=patience)

    def write(self, text: str, *, logger_running: bool = True) -> None:
        """Send a line to the logger. Print the line instead if the logger does not accept it or
        ``logger_running`` is false.
        """
        self._connected = self._connected and logger_running
        if self._connected:
            try:
                self._logger.send({"name": self._name, "text": text})
            except ZmqTimeoutError:
                self._connected = False
        if not self._connected:
            print(text, flush=True)


class Member:
    """This process's membership in the run.

    ``kind`` is ``worker`` (agents, evaluators), ``collector`` (logger, page) or ``server`` (all
    others).

    This class is a context manager that enrols on entry and leaves on exit. It raises `SystemExit`
    on entry if the learner does not respond, and on exit if the run has failed.
    """

    def __init__(self, kind: str) -> None:
        self.name = os.environ["SYMPHONY_ROLE"]
        self.options = options.read()
        self.number = 0
        self._kind = kind
        self._phase, self._changed = RUNNING, threading.Condition()
        self._learner = ZmqClient(service="run", serializer="json", timeout=self.options.patience)
        patience = self.options.patience
        # A subscriber sends no messages, so the program does not have to wait for this socket when
        # it exits.
        self._news = ZmqSub(service="news", topics=PHASE, serializer="json", timeout=patience)
        self._listener = threading.Thread(target=self._follow_phase, daemon=True)
        self._log: Log | None = None
        self._senders: dict[str, ZmqPush] = {}

    # --- the run ---

    def __enter__(self) -> Self:
        try:
            self.number = self._request("enrol", kind=self._kind)["number"]
        except ZmqTimeoutError:
            raise SystemExit(f"{self.name}: no learner; has the run ended?") from None
        self._listener.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._news.close()
        self._listener.join()
        if self._phase == FAILED:
            raise SystemExit(f"{self.name}: the learner failed or is gone")
        if kind is None:
            self._request("leave")

    @property
    def over(self) -> bool:
        """True if workers must leave."""
        return self._phase != RUNNING

    @property
    def closing(self) -> bool:
        """True if this server or collector must leave: no other process still needs it, or the run
        has failed.
        """
        return self._phase in (LAST, FAILED) or (
            self._phase == CLOSING and self._kind != "collector"
        )

    def wait_over(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the end of the run, and return whether the run is
        over.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.over, timeout)

    def wait_closing(self) -> None:
        """Wait until this process must leave."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing)

    def score(self, version: int, value: float) -> None:
        """Report ``value``, the score of version ``version`` of the parameters, to the learner."""
        self._request("score", version=version, value=value)

    def _request(self, what: str, **more: object) -> dict[str, Any]:
        answer: dict[str, Any] = self._learner.request({"what": what, "name": self.name, **more})
        return answer

    def _follow_phase(self) -> None:
        while not self.closing:
            try:
                phase = self._news.recv()[1]
            except ZmqTimeoutError:
                phase = FAILED
            except ZmqClosedError:
                return
            with self._changed:
                self._phase = phase
                self._changed.notify_all()

    # --- messages to other processes ---

    def log(self, text: str) -> None:
        """Send a line to the logger."""
        if self._log is None:
            self._log = Log(self.name, self.options.patience)
        self._log.write(text, logger_running=self._phase != FAILED)

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


def messages(
    pull: ZmqPull | ZmqReceiver, member: Member, check: Callable[[Any], Any]
) -> Iterator[Any]:
    """Yield incoming messages until the member must leave and no message has arrived for `BEAT`
    seconds. Messages that cannot be read or that ``check`` refuses are reported and dropped.
    """
    while True:
        closing = (
            member.closing
            # Check this before waiting, because other members can still send a last message when
            # the run is closing.
        )
        try:
            message = check(pull.recv(timeout=BEAT))
        except ZmqTimeoutError:
            if closing:
                return
        except (ZmqMessageError, InvalidMessage) as exc:
            print(f"a message was dropped: {exc}", flush=True)
        else:
            yield message
