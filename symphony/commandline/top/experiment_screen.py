"""The screen of one experiment: its processes, its topology, its logs and its events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, Footer, Static

from symphony.cluster import Cluster
from symphony.cluster.matching import find_names
from symphony.commandline.output.tables import format_age
from symphony.commandline.output.views import note
from symphony.commandline.top.dialogs import Prompt
from symphony.commandline.top.experiment_views import FollowedLogs, ProcessTable, TopologyTable
from symphony.commandline.top.lines import EventLines
from symphony.commandline.top.process_screen import ProcessScreen
from symphony.commandline.top.row_table import RowTable
from symphony.commandline.top.text_view import TextView
from symphony.commandline.top.texts import one_line
from symphony.commandline.top.watching_screen import Target, WatchingScreen
from symphony.errors import NotFound
from symphony.status import ExperimentStatus
from symphony.support.names import join_names
from symphony.views.experiment_model import ExperimentModel, Update
from symphony.views.feed import ExperimentFeed

TABS = ("processes", "topology", "logs", "events")


class ExperimentScreen(WatchingScreen):
    """One experiment, in four tabs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab('processes')", show=False),
        Binding("2", "tab('topology')", show=False),
        Binding("3", "tab('logs')", show=False),
        Binding("4", "tab('events')", show=False),
        Binding("tab", "next_tab(1)", show=False),
        Binding("shift+tab", "next_tab(-1)", show=False),
        Binding("l", "logs", "logs"),
        Binding("p", "choose_processes", show=False),
        Binding("space", "mark", show=False),
        Binding("slash", "search", "search", key_display="/"),
        Binding("escape", "back", "back"),
        Binding("q", "app.quit", show=False),
    ]
    KEYS: ClassVar[Sequence[tuple[str, str]]] = (
        ("1-4, Tab", "processes, topology, logs, events"),
        ("Enter", "show details of the process"),
        ("Space", "mark the process; controls and l apply to all marked ones"),
        ("l", "show the logs of the process or of the marked ones"),
        ("p", "choose the processes whose logs are shown"),
        ("/", "filter processes, or search logs and events"),
        ("n, N", "earlier, later match"),
        ("f, End", "follow new lines, or stop following"),
        ("w", "wrap long lines"),
        ("Esc", "clear marks and filters, and then go back to the list"),
    )

    def __init__(self, cluster: Cluster, experiment: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._experiment = experiment
        # The feeds apply updates in their threads, so each use of the model takes the lock.
        self._lock = threading.Lock()
        self._model = ExperimentModel(experiment)
        self._feed = ExperimentFeed(cluster, experiment, self._see)
        self._processes = ProcessTable(self.signs, id="processes")
        self._topology = TopologyTable(self.signs, id="topology")
        self._logs = FollowedLogs(cluster, experiment, self.request_drawing, id="logs")

    def compose(self) -> ComposeResult:
        """Yield the heading, the tabs, the line for messages and the keys."""
        yield Static("", id="heading", markup=False)
        yield Static("", id="notice", markup=False)
        yield Static("", id="tabs")
        with ContentSwitcher(initial="processes"):
            yield self._processes
            yield self._topology
            yield self._logs
            yield TextView(EventLines(self._model, self._lock), id="events")
        yield Static("", id="message", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Start to observe the experiment."""
        self.action_tab("processes")
        self._feed.start()
        self._feed.watch_usage()

    def on_unmount(self) -> None:
        """Stop observing the experiment."""
        self._feed.close()
        self._logs.close()

    def _see(self, update: Update) -> None:
        with self._lock:
            version = self._model.version
            self._model.apply(update)
            has_changed = self._model.version != version
        if has_changed:
            self.request_drawing()

    # --- drawing ---

    @property
    def _tab(self) -> str:
        return str(self.query_one(ContentSwitcher).current)

    def draw(self) -> None:
        """Draw the heading and the tab that is shown."""
        self._draw_heading()
        tab = self._tab
        if tab == "processes":
            with self._lock:
                self._processes.show_model(self._model)
        elif tab == "topology":
            with self._lock:
                self._topology.show_model(self._model)
        else:
            self.query_one(f"#{tab}", TextView).update()
        self._draw_tabs()

    def _draw_heading(self) -> None:
        with self._lock:
            status, counts = self._model.status, self._model.counts()
            outage, gone = self._model.outage, self._model.gone
        heading = f"{self._experiment} on {self._cluster.backend}"
        notices = [gone or outage]
        if status is None:
            heading += "  reading ..." if not gone else ""
        else:
            sign = self.signs.states.get(status.displayed_state, " ")
            state = "deleted" if gone else status.displayed_state
            numbers = ", ".join(f"{count} {name}" for name, count in counts.items())
            heading = f"{sign} {heading}  {state}: {numbers}{_age(status)}"
            notices.append("" if gone else note(status, status.now()))
        self.show_heading(heading, "; ".join(filter(None, notices)))

    def _draw_tabs(self) -> None:
        from textual.content import Content

        parts: list[Content | tuple[str, str]] = []
        for number, tab in enumerate(TABS, 1):
            style = "reverse" if tab == self._tab else ""
            parts.append(
                Content(f" {number} {tab.capitalize()} ").stylize(
                    f"{style} @click=screen.tab('{tab}')"
                )
            )
        parts.append(Content(f"  {self._tab_details()}"))
        self.show_text("tabs", Content.assemble(*parts))

    def _tab_details(self) -> str:
        """Return what the tab shows, as text."""
        if self._tab in ("processes", "topology"):
            table = self.query_one(f"#{self._tab}", RowTable)
            words = [table.position]
            if self._processes.marked:
                words.append(f"{len(self._processes.marked)} marked")
            if self._processes.filter:
                words.append(f"filter: {self._processes.filter}")
            return one_line("  ".join(filter(None, words)))
        view = self.query_one(f"#{self._tab}", TextView)
        words = ["following" if view.window.following else "paused"]
        if view.is_held:
            words = ["held: Ctrl-C copies"]
        if self._tab == "logs":
            words.append(join_names(self._logs.selection or ("all",), limit=2))
        words.append(view.position)
        if view.window.wrap:
            words.append("wrap")
        if view.window.pattern:
            words.append(f"/{view.window.pattern}")
        return one_line("  ".join(words))

    # --- what is selected ---

    def target(self) -> Target:
        """Return the marked processes, or else those that the tab shows or has selected."""
        return Target(self._cluster, self._experiment, self._selected())

    def _selected(self) -> tuple[str, ...] | None:
        if self._tab == "logs":
            return self._logs.selection
        if self._tab == "events":
            return None
        if self._processes.marked:
            return tuple(sorted(self._processes.marked))
        if self._tab == "topology":
            return self._selected_in_topology()
        key = self._processes.cursor_key
        return None if key is None else (key,)

    def _selected_in_topology(self) -> tuple[str, ...] | None:
        """Return the processes of the node or the group with the cursor."""
        with self._lock:
            return self._topology.selected(self._model)

    # --- keys and the mouse ---

    def action_tab(self, tab: str) -> None:
        """Show a tab."""
        if tab == "logs" and not self._logs.is_followed:
            self._show_logs(None)
        self.query_one(ContentSwitcher).current = tab
        self.query_one(f"#{tab}").focus()
        self.draw()

    def action_next_tab(self, step: int) -> None:
        """Show the next or the previous tab."""
        self.action_tab(TABS[(TABS.index(self._tab) + step) % len(TABS)])

    def on_row_table_opened(self) -> None:
        """Show details of a process, or the processes of a node of the topology."""
        selected = self._selected_in_topology() if self._tab == "topology" else None
        if self._tab == "processes":
            key = self._processes.cursor_key
            selected = None if key is None else (key,)
        if selected is None:
            return
        with self._lock:
            process = self._model.process(selected[0])
            status = self._model.status
        if len(selected) == 1 and process is not None:
            self.app.push_screen(
                ProcessScreen(
                    self._cluster, self._experiment, process.name, self._model, self._lock
                )
            )
        elif status is not None:
            with contextlib.suppress(NotFound):
                self._processes.marked = set(find_names(status, selected))
            self.action_tab("processes")
            self._processes.move_to(min(self._processes.marked, default=""))

    @on(RowTable.Moved)
    @on(TextView.Moved)
    def show_position(self) -> None:
        """Show the position of the cursor or of the text."""
        self._draw_tabs()

    def action_mark(self) -> None:
        """Mark the process with the cursor, or remove its mark."""
        table = self._processes
        key = table.cursor_key
        if self._tab == "processes" and key is not None:
            self._processes.marked ^= {key}
            self.draw()
            table.action_move(1)

    def action_back(self) -> None:
        """Clear the filter and the marks, or go back to the list."""
        if self._tab == "processes" and (self._processes.filter or self._processes.marked):
            self._processes.filter, self._processes.marked = "", set()
            self.draw()
            return
        self.app.close_experiment()

    def action_search(self) -> None:
        """Ask for a text, and filter the processes or search the logs."""
        if self._tab in ("processes", "topology"):
            self.action_tab("processes")
            prompt = Prompt(
                "Show the processes whose lines contain:",
                text=self._processes.filter,
                hint="an empty text shows all",
            )
            self.app.push_screen(prompt, self._set_filter)
            return
        view = self.query_one(f"#{self._tab}", TextView)
        prompt = Prompt(
            "Search for:",
            text=view.window.pattern,
            hint="n and N go to the next match; capital letters count if there are any",
        )

        def search(text: str | None) -> None:
            if text is not None and not view.search(text):
                self.say(f"no line contains {text!r}", is_error=True)

        self.app.push_screen(prompt, search)

    def _set_filter(self, text: str | None) -> None:
        if text is not None:
            self._processes.filter = text
            self.draw()

    # --- logs ---

    def action_logs(self) -> None:
        """Show the logs of the selected processes."""
        if self._tab in ("processes", "topology"):
            self._show_logs(self._selected())
        self.action_tab("logs")

    def show_logs_of(self, processes: tuple[str, ...]) -> None:
        """Show the logs of processes."""
        self._show_logs(processes)
        self.action_tab("logs")

    def action_choose_processes(self) -> None:
        """Ask whose logs to show."""
        with self._lock:
            status = self._model.status
        if status is None:
            return

        def show(text: str | None) -> None:
            if text is not None:
                self._show_logs(tuple(text.split()) or None)
                self.action_tab("logs")

        prompt = Prompt(
            "Show the logs of:",
            text=" ".join(self._logs.selection or ()),
            hint="processes, groups or patterns such as agent-*; an empty text stands for all",
            check=lambda text: find_names(status, text.split()),
        )
        self.app.push_screen(prompt, show)

    def _show_logs(self, selection: tuple[str, ...] | None) -> None:
        """Follow the logs of processes from now on."""
        with self._lock:
            status = self._model.status
        self._logs.follow(selection, status)


def _age(status: ExperimentStatus) -> str:
    return "" if status.created is None else f"  age {format_age(status.now() - status.created)}"
