"""Launching in the foreground: merged logs, Ctrl-C that stops, and the exit code of the experiment."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import FAILED, INTERRUPTED, OK
from symphony.commandline.output import views
from symphony.commandline.output.pending_reasons import (
    reporting_pending_processes,
    reporting_progress,
)
from symphony.commandline.output.printing import log_formatter, show_json, show_lines
from symphony.commandline.output.terminal import ProgressLine, has_colour, print_note, show_progress
from symphony.commandline.parsing import completion_cache
from symphony.errors import NotFound, Unsupported

if TYPE_CHECKING:
    from symphony.cluster import Cluster, Manifest
    from symphony.cluster.matching import Until
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus


class Interruptions:
    """Ctrl-C as a wish to stop: the first stops the experiment, the second kills it, the third gives up waiting.

    Stopping goes on beside the caller, who goes on showing what the processes write until they have ended. Until
    ``launched`` is set there is nothing to stop: a Ctrl-C is a KeyboardInterrupt, and the launch is taken back.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.launched = False
        self.count = 0
        self._cluster = cluster
        self._name = name
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C so within, and wait for the stopping at the end. Raises what that raised."""
        before = signal.signal(signal.SIGINT, self._pressed)
        try:
            yield
            for thread in self._threads:
                thread.join()
        finally:
            signal.signal(signal.SIGINT, before)
        if self._errors:
            raise self._errors[0]

    def _pressed(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        if not self.launched or self.count > 2:
            raise KeyboardInterrupt
        # In a thread of its own: a signal may come in the middle of a write, which must not be entered twice.
        thread = threading.Thread(target=self._stop, args=(self.count == 2,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop(self, at_once: bool) -> None:
        if at_once:
            print_note(f"symphony: killing {self._name!r}")
        else:
            print_note(f"symphony: stopping {self._name!r}; press Ctrl-C again to kill it at once")
        try:
            stop(self._cluster, self._name, at_once=at_once)
        except NotFound:
            pass  # deleted by somebody else: it is stopped
        except Exception as exc:
            self._errors.append(exc)


def stop(cluster: Cluster, name: str, *, at_once: bool) -> None:
    """Stop an experiment and keep its logs; a backend that cannot do that deletes it."""
    try:
        cluster.stop(name, at_once=at_once)
    except Unsupported:
        cluster.delete(name)


def launch(cluster: Cluster, experiment: Experiment, *, force: bool) -> Manifest:
    """Launch with progress on the terminal."""
    number = len(experiment.list_all_processes())
    with (
        show_progress(f"launching {experiment.name} ({views.count_processes(number)})") as shown,
        _telling_that_it_is_taken_back(shown, experiment.name),
        reporting_progress(shown, lambda now: f"launching {views.startup_line(now)}") as see,
    ):
        manifest = cluster.launch(experiment, force=force, on_change=see)
    completion_cache.clear_cached_names()
    return manifest


@contextlib.contextmanager
def _telling_that_it_is_taken_back(shown: ProgressLine, name: str) -> Iterator[None]:
    """Tell at once that a Ctrl-C was heard: on a cluster it takes seconds until what was made is gone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.getsignal(signal.SIGINT)

    def pressed(number: int, frame: FrameType | None) -> None:
        shown.say_at_once(f"interrupted: taking back what was launched of {name}")
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait(cluster: Cluster, name: str, until: Until) -> ExperimentStatus:
    """Wait until all have come so far or never will, with progress on the terminal; how they are then."""
    with (
        show_progress(f"waiting for {name}") as shown,
        reporting_progress(shown, views.startup_line) as see,
    ):
        return cluster.wait(name, until=until, on_change=see)


def came_up(status: ExperimentStatus, until: Until) -> int:
    """Tell of each process that did not come so far; the exit code: that of the first failure, 1 for one that is late.

    Nobody knows since when one is late, so it counts after those that failed.
    """
    late = [process for process in status if process.not_ready_in_time and until == "ready"]
    for line in (*views.failure_lines(status), *map(views.failure_line, late)):
        print_note(line)
    return status.exit_code or (FAILED if late else OK)


def launched(cluster: Cluster, experiment: Experiment) -> str:
    """What was launched, in one line."""
    number = len(experiment.list_all_processes())
    return f"launched {experiment.name} on {cluster.backend}: {views.count_processes(number)}"


def launch_and_follow(
    cluster: Cluster, experiment: Experiment, *, force: bool, as_json: bool
) -> int:
    """Launch, and show what the processes write until all have ended; the exit code, or 130 after Ctrl-C."""
    name = experiment.name
    interruptions = Interruptions(cluster, name)
    try:
        with interruptions.handled():
            launch(cluster, experiment, force=force)
            interruptions.launched = True
            print_note(launched(cluster, experiment))
            with reporting_pending_processes(cluster, name):
                _show_logs(cluster, experiment, as_json)
        status = cluster.wait(name)
    except NotFound:
        print_note(f"symphony: experiment {name!r} was deleted")
        return INTERRUPTED if interruptions.count else FAILED
    except BrokenPipeError:
        print_note(f"symphony: nobody reads any more; experiment {name!r} goes on")
        raise
    if as_json:
        show_json({**status.to_dict(), "exit_code": status.exit_code}, compact=True)
    for line in views.failure_lines(status):
        print_note(line)
    return INTERRUPTED if interruptions.count else status.exit_code


def _show_logs(cluster: Cluster, experiment: Experiment, as_json: bool) -> None:
    names = [process.name for process in experiment.list_all_processes()]
    form = log_formatter(names, as_json=as_json, colour=has_colour(sys.stdout))
    show_lines(cluster.iter_logs(experiment.name, follow=True), form, at_once=True)
