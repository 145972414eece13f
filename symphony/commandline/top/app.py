"""The application: its screens, the terminal, and the end of the program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message

from symphony.cluster import Cluster, Tunnel
from symphony.commandline.exit_codes import Terminated, error_message
from symphony.commandline.output.graph_drawing import supports_unicode
from symphony.commandline.top import dialogs
from symphony.commandline.top.experiment_screen import ExperimentScreen
from symphony.commandline.top.experiments_screen import ExperimentsScreen, OpenWatch
from symphony.commandline.top.signs import ASCII, UNICODE
from symphony.commandline.top.terminal import LastingDriver
from symphony.commandline.top.watching_screen import Said, WatchingScreen
from symphony.errors import SymphonyError
from symphony.views.controls import Controls

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class TopApp(App[None]):
    """``symphony top``.

    ``controls`` are the commands that the screens offer. ``first`` is the experiment that is shown
    first, or None for the list. `error` is the exception that has ended the application, if there
    was one.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    {dialogs.CSS}
    #heading {{ height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }}
    #notice {{ height: auto; max-height: 3; color: ansi_yellow; text-style: bold; }}
    #tabs {{ height: 1; text-wrap: nowrap; text-overflow: ellipsis; }}
    #message {{ height: auto; min-height: 1; max-height: 3; }}
    #message.error {{ color: ansi_red; text-style: bold; }}
    ContentSwitcher {{ height: 1fr; }}
    VerticalScroll {{ height: 1fr; }}
    Button:focus {{ text-style: reverse; }}
    Input > .input--cursor {{ text-style: reverse; }}
    .screen--selection {{ text-style: reverse; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "app.quit", show=False, system=True),
        Binding("ctrl+z", "app.suspend_process", show=False, system=True),
    ]

    class Attach(Message):
        """The terminal can be attached to a process."""

        def __init__(self, cluster: Cluster, experiment: str, process: str) -> None:
            super().__init__()
            self.cluster = cluster
            self.experiment = experiment
            self.process = process

    def __init__(
        self,
        open_watch: OpenWatch,
        find_cluster: Callable[[str], Cluster],
        controls: Controls,
        first: tuple[Cluster, str] | None = None,
    ) -> None:
        # The colours of the terminal suit its background, and NO_COLOR then removes all of them.
        super().__init__(driver_class=LastingDriver, ansi_color=True)
        self.theme = "ansi-dark"
        self.signs = UNICODE if supports_unicode(sys.stdout, os.environ) else ASCII
        self.set_class(self.signs is ASCII, "-ascii")
        self.controls = controls
        self.error: BaseException | None = None
        self._open_watch = open_watch
        self._find_cluster = find_cluster
        self._first = first
        self._tunnels = contextlib.ExitStack()

    # --- the beginning and the end ---

    def on_mount(self) -> None:
        """Show the first screen, and end after a signal."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._end_because_of, number)
        if self._first is None:
            self.show_list()
        else:
            self.open_experiment(*self._first)

    def on_unmount(self) -> None:
        """Close the tunnels."""
        self._tunnels.close()

    def _end_because_of(self, number: int) -> None:
        self.error = Terminated(number) if number != signal.SIGINT else KeyboardInterrupt()
        self.exit()

    def _fatal_error(self) -> None:
        """Leave the terminal, and let the caller report the exception in one line."""
        self.error = self._exception
        self._close_messages_no_wait()

    # --- screens ---

    def open_experiment(self, cluster: Cluster, experiment: str) -> None:
        """Show an experiment."""
        self.push_screen(ExperimentScreen(cluster, experiment))

    def show_list(self) -> None:
        """Show the list of experiments."""
        self.push_screen(ExperimentsScreen(self._open_watch, self._find_cluster))

    def close_experiment(self) -> None:
        """Go back to the list."""
        self.pop_screen()
        if not isinstance(self.screen, ExperimentsScreen):
            self.show_list()

    def show_logs(self, processes: tuple[str, ...]) -> None:
        """Show the logs of processes of the experiment that is shown."""
        screen = self.screen
        if isinstance(screen, ExperimentScreen):
            screen.show_logs_of(processes)

    def on_said(self, said: Said) -> None:
        """Show a message on the screen that is visible."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, WatchingScreen):
                screen.say(said.text, is_error=said.is_error)
                screen.draw()
                return

    # --- the terminal and other programs ---

    def open_tunnel(self, cluster: Cluster, experiment: str, service: str) -> Tunnel:
        """Return the address of a service, which is forwarded until the application ends."""

        def report(error: str) -> None:
            self.post_message(Said(error, is_error=True))

        return self._tunnels.enter_context(cluster.visit(experiment, service, on_error=report))

    def on_top_app_attach(self, attach: Attach) -> None:
        """Give the terminal to a process until the user detaches."""
        text, is_error = f"detached from {attach.process}", False
        try:
            with self.suspend(), _raised_signals():
                attach.cluster.login(attach.experiment, attach.process)
        except SymphonyError as exc:
            text, is_error = f"error: {error_message(exc)}", True
        except Terminated as exc:
            self._end_because_of(exc.number)
        except KeyboardInterrupt:
            text = "interrupted"
        self.post_message(Said(text, is_error=is_error))


@contextlib.contextmanager
def _raised_signals() -> Iterator[None]:
    """Raise an exception after a signal, because the event loop does not run."""

    def end(number: int, _frame: object) -> None:
        raise Terminated(number) if number != signal.SIGINT else KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
