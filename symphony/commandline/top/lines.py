"""The texts of the views of logs and of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from rich.text import Text

from symphony.commandline.output.event_lines import event_row, is_worth_reporting
from symphony.commandline.top.signs import NAME_STYLES
from symphony.commandline.top.texts import contains, log_text, one_line
from symphony.events import ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.views.experiment_model import ExperimentModel
from symphony.views.output_tail import OutputLine, OutputTail

_EVENT_STYLE = "bold"


class LogLines:
    """The last lines of output of some processes, which a feed adds in another thread.

    ``processes`` contains the names of the processes. If there are several, each line begins with
    the name of its process. ``on_change`` is called in the thread of the feed.
    """

    def __init__(self, processes: Sequence[str], on_change: Callable[[], None]) -> None:
        self._tail = OutputTail()
        self._lock = threading.Lock()
        self._on_change = on_change
        self._names = list(processes)
        # The lines that are shown while the user reads them, and the number of the first one.
        self._held: list[OutputLine] | None = None
        self._first_held = 0

    def receive(self, item: LogBlock | ExperimentEvent | None) -> None:
        """Add output or an event. None means that no more output follows for now."""
        if isinstance(item, ExperimentEvent) and not is_worth_reporting(item):
            return
        with self._lock:
            if item is None:
                self._tail.add_rest()
            else:
                self._tail.add(item)
        self._on_change()

    def hold(self) -> None:
        """Keep the present lines, although new lines are added and old ones are removed."""
        with self._lock:
            self._first_held = self._tail.first
            self._held = self._present(
                self._tail.first, self._tail.end + len(self._tail.incomplete)
            )

    def release(self) -> None:
        """Show all lines that have been added."""
        self._held = None

    @property
    def first(self) -> int:
        """The number of the oldest line."""
        return self._tail.first if self._held is None else self._first_held

    @property
    def end(self) -> int:
        """The number of the next line."""
        if self._held is not None:
            return self._first_held + len(self._held)
        with self._lock:
            return self._tail.end + len(self._tail.incomplete)

    def format(self, start: int, stop: int) -> list[tuple[int, Text]]:
        """Return lines with the numbers ``start`` to ``stop - 1`` as they are shown."""
        return [(number, self._format(line)) for number, line in self._lines(start, stop)]

    def find(self, pattern: str, start: int, stop: int) -> list[int]:
        """Return the numbers of the lines from ``start`` to ``stop - 1`` with a pattern."""
        lines = self._lines(start, stop)
        return [number for number, line in lines if contains(line.text, pattern)]

    def _lines(self, start: int, stop: int) -> list[tuple[int, OutputLine]]:
        if self._held is not None:
            begin = max(start, self._first_held)
            found = self._held[begin - self._first_held : max(0, stop - self._first_held)]
            return list(enumerate(found, begin))
        with self._lock:
            begin = max(start, self._tail.first)
            return list(enumerate(self._present(begin, stop), begin))

    def _present(self, start: int, stop: int) -> list[OutputLine]:
        """Return lines of the tail. Incomplete lines come after complete ones."""
        lines = self._tail.lines(start, stop)
        end = self._tail.end
        if stop > end:
            lines += self._tail.incomplete[max(0, start - end) : stop - end]
        return lines

    def _format(self, line: OutputLine) -> Text:
        if line.is_event:
            subject = "experiment" if line.process is None else f"process {line.process}"
            return Text(one_line(f"symphony: {subject} {line.text}"), style=_EVENT_STYLE, end="")
        text = log_text(line.text)
        if len(self._names) == 1 or line.process is None:
            return text
        return Text.assemble(self._prefix(line.process), text, end="")

    def _prefix(self, process: str) -> tuple[str, str]:
        if process not in self._names:
            # A change of the experiment has added it.
            self._names.append(process)
        style = NAME_STYLES[self._names.index(process) % len(NAME_STYLES)]
        width = max(map(len, self._names))
        return f"{process.ljust(width)} | ", style


class EventLines:
    """The events of an experiment. ``lock`` protects the model."""

    def __init__(self, model: ExperimentModel, lock: threading.Lock) -> None:
        self._model = model
        self._lock = lock

    @property
    def first(self) -> int:
        """The number of the oldest event."""
        return self._model.first_event

    @property
    def end(self) -> int:
        """The number of the next event."""
        with self._lock:
            events = self._model.events_since()
        return events[-1].number + 1 if events else self.first

    def hold(self) -> None:
        """Do nothing, because the model keeps many events, and few are added."""

    def release(self) -> None:
        """Do nothing; see `hold`."""

    def format(self, start: int, stop: int) -> list[tuple[int, Text]]:
        """Return events with the numbers ``start`` to ``stop - 1`` as they are shown."""
        return [(number, Text(text, end="")) for number, text in self._texts(start, stop)]

    def find(self, pattern: str, start: int, stop: int) -> list[int]:
        """Return the numbers of the events from ``start`` to ``stop - 1`` with a pattern."""
        return [number for number, text in self._texts(start, stop) if contains(text, pattern)]

    def _texts(self, start: int, stop: int) -> list[tuple[int, str]]:
        with self._lock:
            events = self._model.events_since(start)
        return [(number, one_line(event_row(event))) for number, event in events if number < stop]
