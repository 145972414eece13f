"""The screen with the details of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from symphony.cluster import Cluster
from symphony.cluster.hidden_output import details_without_secrets
from symphony.commandline.exit_codes import error_message
from symphony.commandline.output.describe import description_lines
from symphony.commandline.output.usage_columns import unavailable_lines
from symphony.commandline.output.views import align_pairs
from symphony.commandline.top.signs import curve
from symphony.commandline.top.texts import one_line
from symphony.commandline.top.watching_screen import Target, WatchingScreen
from symphony.process_details import ProcessDetails
from symphony.support.format_usage import format_bytes, format_core_count, format_share
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony.views.experiment_model import ExperimentModel
from symphony.views.usage_history import UsageHistory
from symphony.views.visible_environment import shown_environment

_CURVE_WIDTH = 50


class ProcessScreen(WatchingScreen):
    """The settings, addresses, environment, resource use and events of a process.

    ``model`` is the model of the experiment's screen, and ``lock`` protects it. The details are
    read again when the status of the process has changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "logs", "logs"),
        Binding("escape", "back", "back"),
        Binding("q", "app.quit", show=False),
    ]
    KEYS: ClassVar[Sequence[tuple[str, str]]] = (
        ("l", "show the logs of the process"),
        ("Esc", "go back to the experiment"),
    )

    def __init__(
        self,
        cluster: Cluster,
        experiment: str,
        process: str,
        model: ExperimentModel,
        lock: threading.Lock,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._experiment = experiment
        self._process = process
        self._model = model
        self._lock = lock
        self._details: ProcessDetails | None = None
        self._environment: dict[str, str] = {}
        self._error = ""
        # The version of the status with which the details were read.
        self._read_version = -1
        self._is_reading = False

    def compose(self) -> ComposeResult:
        """Yield the details, the line for messages and the keys."""
        yield Static(one_line(f"{self._process} of {self._experiment}"), id="heading", markup=False)
        with VerticalScroll(can_focus=True):
            yield Static("reading ...", id="details", markup=False)
        yield Static("", id="message", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Read the details."""
        self.query_one(VerticalScroll).focus()
        self.draw()

    def target(self) -> Target:
        """Return the process."""
        return Target(self._cluster, self._experiment, (self._process,))

    def draw(self) -> None:
        """Draw the details, and read them again if they can have changed."""
        with self._lock:
            version = self._model.versions.processes.get(self._process, -1)
            history = self._model.usage.get(self._process)
            unavailable = self._model.usage_unavailable
            status = self._model.status
            usage = [] if history is None else usage_lines(history, self.signs.levels)
        reasons = unavailable_lines(ExperimentUsage(at=0.0, unavailable=unavailable))
        usage += [f"  {reason}" for reason in reasons]
        if version != self._read_version and not self._is_reading:
            self._read_version = version
            self._is_reading = True
            threading.Thread(target=self._read, daemon=True, name="details").start()
        lines = [self._error] if self._error else []
        if self._details is not None and status is not None:
            lines += description_lines(self._experiment, self._details, [], status.now())
        sections = {"usage": usage, "environment": align_pairs(self._environment.items())}
        for title, section in sections.items():
            if section:
                lines += [title, *section]
        if lines:
            text = "\n".join(_printable(line) for line in lines)
            self.query_one("#details", Static).update(text)

    def _read(self) -> None:
        """Read the details in another thread."""
        self._error = ""
        try:
            details = self._cluster.explain_process(self._experiment, self._process)
            hidden = self._cluster.hidden_values(self._experiment)
            self._details = details_without_secrets(details, hidden)
            self._environment = shown_environment(self._cluster, self._experiment, self._process)
        except Exception as exc:
            self._error = error_message(exc)
        self._is_reading = False
        self.request_drawing()

    def action_logs(self) -> None:
        """Show the logs of the process."""
        self.app.pop_screen()
        self.app.show_logs((self._process,))

    def action_back(self) -> None:
        """Go back to the experiment."""
        self.app.pop_screen()


def usage_lines(history: UsageHistory, levels: str) -> list[str]:
    """Return a line with the present value and a curve for each known kind of resource."""
    pairs = []
    for title, read, show in _RESOURCES:
        values = [read(sample.usage) for sample in history.samples]
        known = [value for value in values if value is not None]
        if known:
            drawn = curve(known, _CURVE_WIDTH, levels)
            now, most = show(known[-1]) or "", show(max(known))
            pairs.append((title, f"{now.rjust(6)}  {drawn}  at most {most}"))
    if history.latest is not None and history.latest.devices:
        pairs.append(("devices", ", ".join(history.latest.devices)))
    return align_pairs(pairs)


_RESOURCES: Sequence[
    tuple[str, Callable[[ProcessUsage], float | None], Callable[[float], str | None]]
] = (
    ("cores", lambda usage: usage.cpu, format_core_count),
    ("memory", lambda usage: usage.memory, format_bytes),
    ("memory (PSS)", lambda usage: usage.pss, format_bytes),
    ("open files", lambda usage: usage.open_files, lambda number: f"{number:.0f}"),
    ("GPU utilization", lambda usage: usage.gpu_utilization, format_share),
    ("GPU memory", lambda usage: usage.gpu_memory, format_bytes),
)


def _printable(line: str) -> str:
    """Return a line with visible control characters. Its indentation remains."""
    indentation = line[: len(line) - len(line.lstrip(" "))]
    rest = line[len(indentation) :]
    return line if line.isprintable() else indentation + one_line(rest)
