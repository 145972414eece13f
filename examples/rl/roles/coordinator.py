"""Collect the members of the run and their scores for the learner, and announce the run's end."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from roles import checks
from roles.member import BEAT, CLOSING, FAILED, LAST, OVER, PHASE, RUNNING
from symphony.addons.zmq import ZmqPub, ZmqServer

if TYPE_CHECKING:
    from typing_extensions import Self

    from roles.options import Options

# The number of most recent versions whose mean return is compared with the target.
WINDOW = 4


class Scores:
    """The returns that evaluators have measured, grouped by parameter version."""

    def __init__(self) -> None:
        self._by_version: dict[int, list[float]] = {}

    def add(self, version: int, value: float) -> None:
        """Add a return that was measured for ``version``."""
        self._by_version.setdefault(version, []).append(value)

    def mean(self, last: int) -> float | None:
        """Return the mean return of the ``last`` most recent versions, or None if fewer versions
        have been measured.
        """
        versions = sorted(self._by_version)[-last:]
        values = [value for version in versions for value in self._by_version[version]]
        return sum(values) / len(values) if values and len(versions) == last else None

    @property
    def first(self) -> float | None:
        """The mean return of the first measured version, or None if no version was measured."""
        values = self._by_version[min(self._by_version)] if self._by_version else []
        return sum(values) / len(values) if values else None


class Coordinator:
    """A context manager that receives a message from each member when the member enrols, reports a
    score or leaves. On exit, it announces the end of the run and waits until all members have left,
    but for at most ``patience`` seconds for each kind of member. After an error, it only announces
    that the run has failed.

    Each of the two sockets is used by only one thread. A condition variable protects the state that
    the threads share.
    """

    def __init__(self, options: Options) -> None:
        self.scores = Scores()
        self._options = options
        self._phase, self._changed, self._closed = RUNNING, threading.Condition(), False
        self._expected = {
            "worker": options.workers,
            "server": options.servers,
            "collector": options.collectors,
        }
        self._here: dict[str, list[str]] = {each: [] for each in self._expected}
        self._left: set[str] = set()
        self._server = ZmqServer(service="run", serializer="json")
        self._news = ZmqPub(service="news", serializer="json")
        self._speaker = threading.Thread(target=self._publish_phase, daemon=True)

    def __enter__(self) -> Self:
        self._server.start_loop(self._reply)
        self._speaker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self._wait_until_left("worker", OVER)
            self._wait_until_left("server", CLOSING)
        self._wait_until_left("collector", LAST if kind is None else FAILED)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._speaker.join()
        self._server.stop()
        self._server.join()  # The last member to leave must still receive its reply.
        self._server.close()

    def wait_for_everybody(self) -> bool:
        """Wait until all members have enrolled, but for at most ``patience`` seconds. Return
        whether all of them have enrolled.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: all(
                    len(self._here[kind]) >= number for kind, number in self._expected.items()
                ),
                self._options.patience,
            )

    @property
    def reached(self) -> bool:
        """True if a target is set and the mean return of the latest `WINDOW` versions has reached
        it.
        """
        with self._changed:
            mean = self.scores.mean(WINDOW)
        return (
            self._options.target is not None and mean is not None and mean >= self._options.target
        )

    def _wait_until_left(self, kind: str, phase: str) -> None:
        """Publish ``phase``, and wait until all members of ``kind`` have left, but for at most
        ``patience`` seconds. If the phase is `FAILED`, do not wait.
        """
        with self._changed:
            self._phase = phase
            self._changed.notify_all()
            gone = self._changed.wait_for(
                lambda: (
                    phase == FAILED
                    or sum(name in self._left for name in self._here[kind]) >= self._expected[kind]
                ),
                self._options.patience,
            )
            late = [name for name in self._here[kind] if name not in self._left]
        if not gone:
            print(
                f"not waiting any longer for {', '.join(late) or f'{kind}s that never enrolled'}",
                flush=True,
            )

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            try:
                return self._record(message)
            finally:
                self._changed.notify_all()

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        what, name = checks.enrolment(message)["what"], message["name"]
        if what == "enrol":
            members = self._here[message["kind"]]
            if name not in members:
                members.append(name)
            return {"number": members.index(name)}
        if what == "score":
            checks.score(message)
            self.scores.add(message["version"], message["value"])
        elif what == "leave":
            self._left.add(name)
        return {}

    def _publish_phase(self) -> None:
        with self._news:
            while True:
                with self._changed:
                    phase, closed = self._phase, self._closed
                self._news.send(PHASE, phase)
                if closed:
                    return
                with self._changed:
                    self._changed.wait_for(
                        lambda seen=phase: self._closed or self._phase != seen, BEAT
                    )  # type: ignore[misc]
