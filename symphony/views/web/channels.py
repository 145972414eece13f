"""The observed experiments, which all viewers of the server share.

A channel observes one experiment, or some of its output, from the first viewer until some seconds
after the last one. Each viewer reads the state of a channel in its own speed: a slow viewer misses
intermediate states, and nothing is queued for it.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from symphony.cluster import Cluster, WatchedStatuses
from symphony.events import ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.views.experiment_list import ExperimentListFeed
from symphony.views.experiment_model import ExperimentModel, TopologySeen, Update
from symphony.views.feed import ExperimentFeed, OutputFeed
from symphony.views.output_tail import OutputTail
from symphony.views.web.messages import topology_picture

# How long a channel observes after its last viewer, who often only reloads the page.
LINGER_SECONDS = 5.0
# The limits of the output that a channel keeps.
MAX_LINES, MAX_CHARACTERS = 10_000, 4 * 1024 * 1024

Key = tuple[object, ...]
OpenWatch = Callable[[], AbstractContextManager[Callable[[], WatchedStatuses]]]


class Signal:
    """Wakes the viewers of a channel, in the event loop, after a change in any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[asyncio.Event] = set()
        self._is_scheduled = False

    @contextmanager
    def waiting(self, event: asyncio.Event) -> Iterator[None]:
        """Return a context in which each change sets ``event``."""
        self._waiting.add(event)
        try:
            yield
        finally:
            self._waiting.discard(event)

    def send(self) -> None:
        """Wake the viewers. A wake-up that is already on its way is sufficient."""
        if not self._is_scheduled:
            self._is_scheduled = True
            # The loop is closed while the program exits.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_scheduled = False
        for event in self._waiting:
            event.set()


class Channel:
    """A part of the state that viewers observe. ``lock`` protects the state.

    ``identity`` is different for each channel, so that a viewer which has read from another one
    reads from the beginning.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.identity = secrets.token_hex(4)
        self.lock = threading.Lock()
        self.signal = Signal(loop)
        self.viewers = 0

    def open(self) -> None:
        """Begin to observe, or continue."""

    def rest(self) -> bool:
        """Stop observing. Return whether the channel is not needed any more."""
        return True


class ListChannel(Channel):
    """The experiments of all backends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, open_watch: OpenWatch) -> None:
        super().__init__(loop)
        self.watched: WatchedStatuses | None = None
        self._feed = ExperimentListFeed(open_watch, self._update)
        self._is_started = False
        # The number of changes.
        self.version = 0

    def open(self) -> None:
        """Start the feed."""
        if not self._is_started:
            self._is_started = True
            self._feed.start()

    def rest(self) -> bool:
        """Close the feed."""
        self._feed.close()
        return True

    def _update(self, watched: WatchedStatuses) -> None:
        with self.lock:
            self.watched = watched
            self.version += 1
        self.signal.send()


class ExperimentChannel(Channel):
    """The model of one experiment."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster: Cluster, name: str) -> None:
        super().__init__(loop)
        self.cluster = cluster
        self.model = ExperimentModel(name)
        self.picture: dict[str, Any] | None = None
        self._feed = ExperimentFeed(cluster, name, self._update)
        self._is_started = False

    def open(self) -> None:
        """Start the feed, or continue after a pause."""
        if self._is_started:
            self._feed.resume()
            return
        self._is_started = True
        self._feed.start()
        self._feed.watch_usage()

    def rest(self) -> bool:
        """Pause the feed, and close it if the experiment has finished.

        The thread that waits for the next event of a running experiment cannot be ended. A second
        feed would add another one.
        """
        with self.lock:
            status = self.model.status
            is_over = bool(self.model.gone) or status is None or status.ended
        if is_over:
            self._feed.close()
            return True
        self._feed.pause()
        return False

    def refresh(self) -> None:
        """Read the status now, because of a control."""
        self._feed.refresh()

    def _update(self, update: Update) -> None:
        # The layout of a large topology takes some time.
        picture = topology_picture(update.topology) if isinstance(update, TopologySeen) else None
        with self.lock:
            before = self.model.version
            self.model.apply(update)
            if picture is not None or self.model.topology is None:
                self.picture = picture
            has_changed = self.model.version != before
        if has_changed:
            self.signal.send()


class OutputChannel(Channel):
    """The last lines of the output of some processes, or of all if ``processes`` is empty."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster: Cluster,
        experiment: str,
        processes: tuple[str, ...],
        first_lines: int,
    ) -> None:
        super().__init__(loop)
        self.tail = OutputTail(max_lines=MAX_LINES, max_characters=MAX_CHARACTERS)
        self.has_ended = False
        # The number of changes.
        self.version = 0
        self._is_started = False
        self._is_resting = False
        self._feed = OutputFeed(
            cluster, experiment, list(processes) or None, self._add, first_lines=first_lines
        )

    def open(self) -> None:
        """Start the feed, unless it still waits for the next line."""
        with self.lock:
            self._is_resting = False
        if not self._is_started:
            self._is_started = True
            self._feed.start()

    def rest(self) -> bool:
        """Close the feed with the next line, because the thread that waits for it cannot be ended.

        Until then, a viewer can continue to use the channel.
        """
        with self.lock:
            self._is_resting = True
            if not self.has_ended:
                return False
        self._feed.close()
        return True

    @property
    def is_closed(self) -> bool:
        """Return whether the feed was closed while no viewer observed it."""
        return self._is_resting and self.has_ended

    def _add(self, output: LogBlock | ExperimentEvent | None) -> None:
        with self.lock:
            if self._is_resting:
                self.has_ended = True
                # The feed's own thread, which holds its lock, closes it after this call.
                threading.Thread(target=self._feed.close, daemon=True).start()
                return
            self.version += 1
            if output is None:
                self.tail.add_rest()
            else:
                self.tail.add(output)
            self.has_ended = output is None
        self.signal.send()


@dataclass
class Channels:
    """All channels, by the keys of what they observe. Used in the event loop only."""

    open_channels: dict[Key, Channel] = field(default_factory=dict)
    linger_seconds: float = LINGER_SECONDS

    @contextmanager
    def viewing(self, key: Key, create: Callable[[], Channel]) -> Iterator[Channel]:
        """Return a context with the channel for ``key``, which is created if necessary."""
        channel = self.open_channels.get(key)
        if channel is None or (isinstance(channel, OutputChannel) and channel.is_closed):
            channel = self.open_channels[key] = create()
        channel.open()
        channel.viewers += 1
        try:
            yield channel
        finally:
            channel.viewers -= 1
            if not channel.viewers:
                loop = asyncio.get_running_loop()
                loop.call_later(self.linger_seconds, self._rest, key, channel)

    def _rest(self, key: Key, channel: Channel) -> None:
        if channel.viewers or self.open_channels.get(key) is not channel:
            return
        if channel.rest():
            del self.open_channels[key]
