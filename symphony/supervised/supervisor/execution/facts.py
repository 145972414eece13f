"""The facts that the executor of one machine knows; see `symphony.plan.observation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symphony.plan.observation import ABSENT, Known, Observation, Seen
from symphony.plan.policies import Ending


class Facts:
    """The facts about one run. ``on_news`` is called when something has changed.

    ``strays`` and ``strays_since``, ``released``, ``eviction`` and ``kills_at_once`` are those of
    an `Observation`.
    """

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._known = Known()
        self._strays: bool | None = False
        self._strays_since: float | None = None
        self._strays_killed = False
        self._released = 0
        self._eviction: Ending | None = None
        self._kills_at_once = False

    def observation(self) -> Observation:
        """Return all facts."""
        known = self._known
        return Observation(
            known.processes,
            strays=self._strays,
            strays_since=self._strays_since,
            strays_killed=self._strays_killed,
            released=self._released,
            eviction=self._eviction,
            kills_at_once=self._kills_at_once,
            active=known.active,
            news=known.news,
        )

    def note_decision(self) -> None:
        """Note that a decision has considered all facts."""
        self._known.note_decision()

    def seen(self, name: str) -> Seen:
        """Return what is known about a process."""
        return self._known.processes.get(name, ABSENT)

    def begin(self, name: str, attempt: int) -> None:
        """Note that the execution number ``attempt`` of a process begins."""
        self._known.put(name, Seen(attempt=attempt, starting=True))
        # The execution can leave programs behind.
        self._strays, self._strays_since, self._strays_killed = None, None, False
        self._on_news()

    def note(self, name: str, **changes: Any) -> None:
        """Note facts about the present execution of a process, which are fields of `Seen`."""
        self._known.put(name, self.seen(name).changed(changes))
        self._on_news()

    def forget_unavailable(self) -> None:
        """Forget why resources could not be reserved, because another request can try again."""
        for name, seen in self._known.processes.items():
            if seen.unavailable:
                self.note(name, unavailable="")

    def forget(self, name: str) -> None:
        """Forget a process that does not belong to the experiment any more."""
        self._known.forget(name)
        self._on_news()

    def note_strays(self, were_found: bool, *, now: float, killed: bool) -> None:
        """Note whether programs of the run were found that belong to no process."""
        if were_found:
            self._strays = True
            self._strays_since = now if self._strays_since is None else self._strays_since
            self._strays_killed = self._strays_killed or killed
        else:
            self._strays, self._strays_since, self._strays_killed = False, None, False
        self._on_news()

    def note_unknown_strays(self) -> None:
        """Note that programs may be running that a killed supervisor has left behind."""
        self._strays = None
        self._on_news()

    def note_released(self, revision: int) -> None:
        """Note that the resources are released which a change has replaced."""
        self._released = revision
        self._on_news()

    def note_eviction(self, eviction: Ending) -> None:
        """Note that the system stops the experiment."""
        self._eviction = eviction
        self._on_news()

    @property
    def eviction(self) -> Ending | None:
        """Why the system stops the experiment, or None."""
        return self._eviction

    def note_kill(self) -> None:
        """Note that a user stops the experiment without grace periods."""
        self._kills_at_once = True
        self._on_news()
