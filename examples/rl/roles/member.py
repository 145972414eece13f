"""Taking part in the run: a process enrols with the learner, hears from it when all is over, and says when it leaves.

The learner alone knows when the run ends. It repeats the phase of the run under the topic ``phase`` several times a
second, so that who comes late learns of it as well, and who hears nothing for long knows that the learner is gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from roles import options
from symphony.addons.zmq import (
    ZmqClient,
    ZmqClosedError,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqSender,
    ZmqSub,
    ZmqTimeoutError,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# The phases of a run. Workers leave when it is over, servers when it closes, that is when all workers have left, and
# collectors last: the servers still have something to say to them when it closes.
RUNNING, OVER, CLOSING, LAST, FAILED = "running", "over", "closing", "last", "failed"
PHASE = "phase"
# How often those that wait for messages look whether the run is closing, in seconds.
BEAT = 0.2


class Log:
    """Lines for the logger, which has a line when `say` returns.

    Where nobody takes one while ``patience`` lasts, it and all later ones stand in the output of this process.
    """

    def __init__(self, name: str, patience: float) -> None:
        self._name, self._heard = name, True
        self._logger = ZmqSender(service="log", serializer="json", timeout=patience)

    def say(self, text: str, *, heard: bool = True) -> None:
        """A line. Who knows that the logger has left says that nobody hears it."""
        self._heard = self._heard and heard
        if self._heard:
            try:
                self._logger.send({"name": self._name, "text": text})
            except ZmqTimeoutError:
                self._heard = False
        if not self._heard:
            print(text, flush=True)


class Member:
    """This process's part in the run.

    ``kind`` is ``worker`` (agents, evaluators), ``collector`` (logger, page) or ``server`` (all others).

    A context manager: it enrols, and leaves. It ends the program when the run has failed.
    """

    def __init__(self, kind: str) -> None:
        self.name = os.environ["SYMPHONY_ROLE"]
        self.options = options.read()
        self.number = 0
        self._kind = kind
        self._phase, self._changed = RUNNING, threading.Condition()
        self._learner = ZmqClient(service="run", serializer="json", timeout=self.options.patience)
        patience = self.options.patience
        # It sends nothing that the end of the program would have to wait for.
        self._news = ZmqSub(service="news", topics=PHASE, serializer="json", timeout=patience)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._log: Log | None = None
        self._senders: dict[str, ZmqPush] = {}

    # --- the run ---

    def __enter__(self) -> Self:
        try:
            self.number = self._tell("enrol", kind=self._kind)["number"]
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
            self._tell("leave")

    @property
    def over(self) -> bool:
        """Whether workers shall leave."""
        return self._phase != RUNNING

    @property
    def closing(self) -> bool:
        """Whether this shall leave, be it a server or a collector: nobody is there any more who needs it."""
        return self._phase in (LAST, FAILED) or (
            self._phase == CLOSING and self._kind != "collector"
        )

    def wait_over(self, timeout: float) -> bool:
        """Wait until the run is over, for at most ``timeout`` seconds; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.over, timeout)

    def wait_closing(self) -> None:
        """Wait until this shall leave."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing)

    def score(self, version: int, value: float) -> None:
        """Tell the learner how well a version of the parameters does."""
        self._tell("score", version=version, value=value)

    def _tell(self, what: str, **more: object) -> dict[str, Any]:
        answer: dict[str, Any] = self._learner.request({"what": what, "name": self.name, **more})
        return answer

    def _listen(self) -> None:
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

    # --- what everybody has to say ---

    def say(self, text: str) -> None:
        """A line for the logger."""
        if self._log is None:
            self._log = Log(self.name, self.options.patience)
        self._log.say(text, heard=self._phase != FAILED)

    def measure(self, series: str, step: int, value: float) -> None:
        """A number for the recorder."""
        self.send("metrics", {"name": self.name, "series": series, "step": step, "value": value})

    def send(self, service: str, message: object) -> None:
        """Push a message to whoever collects what this service is for."""
        if service not in self._senders:
            self._senders[service] = ZmqPush(
                service=service, serializer="json", timeout=self.options.patience
            )
        self._senders[service].send(message)


def messages(pull: ZmqPull | ZmqReceiver, member: Member) -> Iterator[Any]:
    """What comes in, until the member shall leave and nothing more has come for a moment."""
    while True:
        closing = (
            member.closing
        )  # looked at before the wait: others may say a last word when they hear of it
        try:
            yield pull.recv(timeout=BEAT)
        except ZmqTimeoutError:
            if closing:
                return
