"""The base class of the screens: messages, drawing after changes, and controls of experiments."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingsMap, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from symphony.cluster import Cluster
from symphony.commandline.exit_codes import error_message
from symphony.commandline.top.dialogs import Choice, Confirmation, Help, Prompt
from symphony.commandline.top.signs import Signs
from symphony.commandline.top.texts import one_line
from symphony.errors import NotFound, SymphonyError
from symphony.views.browser import has_display
from symphony.views.controls import Control, UserAction, name_processes

if TYPE_CHECKING:
    from symphony.commandline.top.app import TopApp

# A change is drawn at once, and the next one not before this time has passed.
_DRAW_INTERVAL_SECONDS = 0.1
# Ages and other texts that depend on the time are drawn at this interval.
_CLOCK_SECONDS = 1.0


class Target(NamedTuple):
    """The experiment and the processes to which a control applies.

    ``processes`` is None for all processes.
    """

    cluster: Cluster
    experiment: str
    processes: tuple[str, ...] | None


class Said(Message):
    """A message for the user, which can come from another thread."""

    def __init__(self, text: str, *, is_error: bool = False) -> None:
        super().__init__()
        self.text = text
        self.is_error = is_error


class WatchingScreen(Screen[None]):
    """A screen that draws what other threads observe.

    A subclass implements `draw`, which is called after `request_drawing` and every second.
    """

    app: TopApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "attach", "attach", show=False),
        Binding("o", "open_service", "open in the browser", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
    ]
    # The keys of the screen for the help.
    KEYS: ClassVar[Sequence[tuple[str, str]]] = ()
    # The keys of all screens for the help, in addition to the keys of controls.
    COMMON_KEYS: ClassVar[Sequence[tuple[str, str]]] = (
        ("a", "attach the terminal to the process"),
        ("o", "open an exposed service in the browser"),
        ("?", "this help"),
        ("Ctrl-C", "copy the text that is selected with the mouse, or quit"),
        ("q", "quit; the experiments keep running"),
    )

    class Changed(Message):
        """Something that the screen shows has changed."""

    def __init__(self) -> None:
        super().__init__()
        # The footer shows the keys in this order.
        self._bindings = BindingsMap.merge([self._control_keys(), self._bindings])
        self._is_requested = False
        self._drawn = 0.0
        # The texts of widgets, by their identifiers.
        self._texts: dict[str, str | Content] = {}

    def _control_keys(self) -> BindingsMap:
        return BindingsMap(
            Binding(control.key, f"control({name!r})", name, show=control.in_footer)
            for name, control in self.app.controls.items()
        )

    @property
    def signs(self) -> Signs:
        """The characters that the terminal supports."""
        return self.app.signs

    @abstractmethod
    def draw(self) -> None:
        """Draw the present state."""

    @abstractmethod
    def target(self) -> Target | None:
        """Return what controls apply to, or None if there is nothing."""

    # --- drawing ---

    def on_mount(self) -> None:
        """Draw the screen every second."""
        self.set_interval(_CLOCK_SECONDS, self.draw)

    def request_drawing(self) -> None:
        """Draw soon. This method can be called in any thread."""
        if not self._is_requested:
            self._is_requested = True
            self.post_message(self.Changed())

    def on_watching_screen_changed(self) -> None:
        """Draw now, or when the last drawing is long enough ago."""
        remaining = self._drawn + _DRAW_INTERVAL_SECONDS - time.monotonic()
        if remaining <= 0:
            self._draw_request()
        else:
            self.set_timer(remaining, self._draw_request)

    def _draw_request(self) -> None:
        self._is_requested = False
        self.draw()
        self._drawn = time.monotonic()

    def show_heading(self, heading: str, notice: str) -> None:
        """Show the heading, and a notice below it unless the notice is empty."""
        self.show_text("heading", one_line(heading))
        self.show_text("notice", one_line(notice))
        self.query_one("#notice").display = bool(notice)

    def show_text(self, widget_id: str, text: str | Content) -> None:
        """Show a text in a widget, unless it shows this text already.

        Arranging the screen again takes longer than all other drawing.
        """
        if self._texts.get(widget_id) != text:
            self._texts[widget_id] = text
            has_one_row = widget_id in ("heading", "tabs")
            self.query_one(f"#{widget_id}", Static).update(text, layout=not has_one_row)

    # --- messages ---

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a message above the keys."""
        self.show_text("message", one_line(text))
        self.query_one("#message").set_class(is_error, "error")

    def say_error(self, error: Exception) -> None:
        """Show an error in one line."""
        self.say(f"error: {error_message(error)}", is_error=True)

    def in_background(self, function: Callable[[], str]) -> None:
        """Call a function in another thread, and show its result, unless it is empty, or its
        error.
        """

        def run() -> None:
            try:
                text = function()
                if text:
                    self.app.post_message(Said(text))
            except Exception as exc:
                self.app.post_message(Said(f"error: {error_message(exc)}", is_error=True))

        threading.Thread(target=run, daemon=True, name="control").start()

    # --- controls ---

    def action_control(self, name: str) -> None:
        """Carry out a control after the user has entered its value and confirmed it."""
        target = self.found_target()
        if target is None:
            return
        control = self.app.controls[name]
        processes = None if control.whole_experiment else target.processes
        entry = control.entry

        def confirm(value: str) -> None:
            request = UserAction(
                action=name, experiment=target.experiment, processes=processes, value=value
            )
            self._confirm(target, control, request)

        if entry is None:
            confirm("")
            return

        def enter(text: str | None) -> None:
            if text is not None:
                confirm(entry.parse(text))

        title = entry.title.format(target=_words(target), experiment=target.experiment)
        text = _replicated_name(target) if entry.is_count else entry.default
        prompt = Prompt(title, text=text, hint=entry.hint, check=entry.parse)
        self.app.push_screen(prompt, enter)

    def action_attach(self) -> None:
        """Attach the terminal to a process."""
        target = self.found_target()
        if target is None:
            return
        if target.processes is None or len(target.processes) != 1:
            self.say("select one process to attach to", is_error=True)
            return
        process = target.processes[0]
        cluster, experiment = target.cluster, target.experiment

        def check() -> str:
            cluster.check_login(experiment, process)
            self.app.post_message(self.app.Attach(cluster, experiment, process))
            return ""

        self.in_background(check)

    def action_open_service(self) -> None:
        """Open an exposed service in the browser, or show its address."""
        target = self.found_target()
        if target is None:
            return
        cluster, experiment = target.cluster, target.experiment

        def find() -> str:
            services = list(cluster.exposed_services(experiment))
            if not services:
                raise NotFound(
                    f"experiment {experiment!r} exposes no service; expose one with: "
                    "exposes: {NAME: PORT}"
                )
            if len(services) == 1:
                return self._visit(cluster, experiment, services[0])
            self.app.call_from_thread(self._choose_service, cluster, experiment, services)
            return ""

        self.in_background(find)

    def _choose_service(self, cluster: Cluster, experiment: str, services: Sequence[str]) -> None:
        def visit(service: str | None) -> None:
            if service is not None:
                self.in_background(lambda: self._visit(cluster, experiment, service))

        self.app.push_screen(Choice(f"Service of {experiment}:", services), visit)

    def _visit(self, cluster: Cluster, experiment: str, service: str) -> str:
        """Open a service in the browser, and return its address."""
        tunnel = self.app.open_tunnel(cluster, experiment, service)
        url = f"http://{tunnel.address}"
        note = " (forwarded until top exits)" if tunnel.forwarded else ""
        if has_display(os.environ):
            open_browser(url)
            return f"opened {url}{note}"
        return f"{service}: {url}{note}"

    def action_help(self) -> None:
        """Show the keys."""
        controls = [(control.key, control.help) for control in self.app.controls.values()]
        self.app.push_screen(Help([*self.KEYS, *controls, *self.COMMON_KEYS]))

    def found_target(self) -> Target | None:
        """Return what controls apply to. If there is nothing, tell the user."""
        try:
            target = self.target()
        except SymphonyError as exc:
            self.say_error(exc)
            return None
        if target is None:
            self.say("nothing is selected", is_error=True)
        return target

    def _confirm(self, target: Target, control: Control, request: UserAction) -> None:
        """Carry out a control, after a confirmation if it ends processes."""

        def run(is_confirmed: bool | None = True) -> None:
            if not is_confirmed:
                self.say("cancelled")
                return
            self.say(f"{request.action} {_words(target)} ...")
            self.in_background(lambda: control.perform(target.cluster, request))

        question = control.question(request)
        if question is not None:
            self.app.push_screen(Confirmation(question.text), run)
        else:
            run()


def open_browser(url: str) -> None:
    """Open a page in the user's browser, which cannot write to the terminal."""
    import subprocess
    import sys

    subprocess.Popen(
        [sys.executable, "-I", "-m", "webbrowser", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _words(target: Target) -> str:
    """Return what a control applies to, such as ``learner of rl``."""
    if target.processes is None:
        return target.experiment
    return name_processes(target.experiment, target.processes, limit=4)


def _replicated_name(target: Target) -> str:
    """Return the beginning of the number of replicas for the selected process, or ``""``."""
    name = target.processes[0].rpartition("-")[0] if target.processes else ""
    return f"{name}=" if name else ""
