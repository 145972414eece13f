"""The first screen: the experiments of all backends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from symphony.cluster import Cluster, WatchedStatuses
from symphony.commandline.output.views import EXPERIMENT_COLUMNS, count_words, experiment_row
from symphony.commandline.top.dialogs import Prompt
from symphony.commandline.top.row_table import RowTable, TableRow
from symphony.commandline.top.signs import STATE_STYLES
from symphony.commandline.top.texts import cell, contains
from symphony.commandline.top.watching_screen import Target, WatchingScreen
from symphony.status import STATES_BY_ATTENTION, ExperimentStatus
from symphony.views.experiment_list import ExperimentListFeed

OpenWatch = Callable[[Callable[[str], None]], AbstractContextManager[Callable[[], WatchedStatuses]]]


class ExperimentsScreen(WatchingScreen):
    """The list of experiments, those that need attention first.

    ``open_watch`` takes a function that is called with notes for the user, and returns a context
    with a function that reads the statuses. ``find_cluster`` returns the cluster of a backend.
    The experiments are only observed while the list is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("q,escape", "app.quit", "quit"),
    ]
    KEYS: ClassVar[Sequence[tuple[str, str]]] = (
        ("Enter", "open the experiment"),
        ("/", "show only the experiments whose lines contain a text"),
    )

    def __init__(self, open_watch: OpenWatch, find_cluster: Callable[[str], Cluster]) -> None:
        super().__init__()
        self._open_watch = open_watch
        self._find_cluster = find_cluster
        self._lock = threading.Lock()
        self._watched = WatchedStatuses([])
        self._is_known = False
        self._note = ""
        self._filter = ""
        self._feed: ExperimentListFeed | None = None

    def compose(self) -> ComposeResult:
        """Yield the heading, the table, the line for messages and the keys."""
        yield Static("", id="heading", markup=False)
        yield Static("", id="notice", markup=False)
        yield RowTable(styled="STATE", mark=self.signs.mark, id="experiments")
        yield Static("", id="message", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Draw the empty list."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Start to observe the experiments."""
        if self._feed is None:
            self._feed = ExperimentListFeed(lambda: self._open_watch(self._see_note), self._see)
            self._feed.start()

    def close_feed(self) -> None:
        """Stop observing the experiments."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def on_unmount(self) -> None:
        """Stop observing the experiments."""
        self.close_feed()

    def _see(self, watched: WatchedStatuses) -> None:
        with self._lock:
            self._watched = watched
            self._is_known = True
        self.request_drawing()

    def _see_note(self, note: str) -> None:
        self._note = note
        self.request_drawing()

    # --- drawing ---

    def draw(self) -> None:
        """Draw the list."""
        with self._lock:
            statuses, outage = self._watched
        rows = [self._row(status) for status in sorted(statuses, key=_attention)]
        shown = [row for row in rows if not self._filter or _matches(row, self._filter)]
        table = self.query_one("#experiments", RowTable)
        table.empty_text = "no experiments" if self._is_known else "reading ..."
        if self._filter:
            table.empty_text = f"no experiment contains {self._filter!r}"
        table.show(EXPERIMENT_COLUMNS, shown)
        states = count_words(status.displayed_state for status in sorted(statuses, key=_attention))
        counts = "1 experiment" if len(statuses) == 1 else f"{len(statuses)} experiments"
        counts += f": {', '.join(states)}" if states else ""
        filtered = f"  [filter: {self._filter}]" if self._filter else ""
        heading = f"symphony top  {counts}{filtered}"
        self.show_heading(heading, "; ".join(filter(None, (outage, self._note))))

    def _row(self, status: ExperimentStatus) -> TableRow:
        state = status.displayed_state
        return TableRow(
            key=f"{status.backend}/{status.name}",
            cells=[cell(value) for value in experiment_row(status, status.now())],
            sign=self.signs.states.get(state, " "),
            style=STATE_STYLES.get(state, ""),
        )

    # --- controls ---

    def target(self) -> Target | None:
        """Return the experiment with the cursor."""
        key = self.query_one("#experiments", RowTable).cursor_key
        if key is None:
            return None
        backend, _, name = key.partition("/")
        return Target(self._find_cluster(backend), name, None)

    def on_row_table_opened(self) -> None:
        """Show the experiment with the cursor."""
        target = self.found_target()
        if target is not None:
            self.close_feed()
            self.app.open_experiment(target.cluster, target.experiment)

    def action_filter(self) -> None:
        """Ask which experiments to show."""

        def set_filter(text: str | None) -> None:
            if text is not None:
                self._filter = text
                self.draw()

        prompt = Prompt(
            "Show the experiments whose lines contain:",
            text=self._filter,
            hint="an empty text shows all",
        )
        self.app.push_screen(prompt, set_filter)


def _attention(status: ExperimentStatus) -> tuple[int, str, str]:
    """Return a sort key: experiments that need the user's attention first."""
    state = status.displayed_state
    order = STATES_BY_ATTENTION.index(state) if state in STATES_BY_ATTENTION else 0
    if any(process.failed for process in status):
        order = 0
    return order, status.name, status.backend


def _matches(row: TableRow, pattern: str) -> bool:
    return contains(" ".join(row.cells), pattern)
