"""Launch an experiment in the foreground, or wait for an experiment.

The module shows progress and logs, handles Ctrl-C, and determines the exit code.
"""

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
    """A handler for Ctrl-C that stops an experiment.

    The first Ctrl-C stops the experiment, the second kills it, and the third raises
    KeyboardInterrupt. A separate thread stops the experiment, so that the caller can show the
    output of the processes until they exit.

    Until ``launched`` is set, every Ctrl-C raises KeyboardInterrupt, which causes the launch to be
    rolled back.
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
        """Handle Ctrl-C inside the block.

        After Ctrl-C, the context manager does not exit until the experiment has been stopped.

        Raises the first error that occurred while the experiment was being stopped.
        """
        previous = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            yield
            for thread in self._threads:
                thread.join()
        finally:
            signal.signal(signal.SIGINT, previous)
        if self._errors:
            raise self._errors[0]

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        if not self.launched or self.count > 2:
            raise KeyboardInterrupt
        # A signal can interrupt a write, and writing to a stream is not reentrant. Another thread
        # therefore writes the messages.
        thread = threading.Thread(target=self._stop, args=(self.count == 2,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop(self, at_once: bool) -> None:
        if at_once:
            print_note(f"symphony: killing {self._name!r}")
        else:
            print_note(f"symphony: stopping {self._name!r}; press Ctrl-C again to kill it")
        try:
            stop_or_delete(self._cluster, self._name, at_once=at_once)
        except NotFound:
            pass  # Another command deleted the experiment, so there is nothing to stop.
        except Exception as exc:
            self._errors.append(exc)


def stop_or_delete(cluster: Cluster, name: str, *, at_once: bool) -> None:
    """Stop an experiment and keep its logs, or delete it if the backend cannot stop experiments."""
    try:
        cluster.stop(name, at_once=at_once)
    except Unsupported:
        cluster.delete(name)


def launch_with_progress(cluster: Cluster, experiment: Experiment, *, force: bool) -> Manifest:
    """Launch an experiment, and show its progress on the terminal."""
    size = views.count_processes(len(experiment.list_all_processes()))
    with (
        show_progress(f"launching {experiment.name} ({size})") as shown,
        _announcing_rollback(shown, experiment.name),
        reporting_progress(
            shown, lambda status: f"launching {views.startup_line(status)}"
        ) as on_change,
    ):
        manifest = cluster.launch(experiment, force=force, on_change=on_change)
    completion_cache.clear_cached_names()
    return manifest


@contextlib.contextmanager
def _announcing_rollback(shown: ProgressLine, name: str) -> Iterator[None]:
    """Show a message as soon as Ctrl-C interrupts the launch.

    On a cluster, rolling back a launch can take several seconds. Without the message, the user
    might believe that Ctrl-C had no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can install signal handlers.
        yield
        return

    previous = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        shown.update_from_signal_handler(f"interrupted: rolling back the launch of {name}")
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def launch_summary(cluster: Cluster, experiment: Experiment) -> str:
    """Return a one-line summary of the launch."""
    size = views.count_processes(len(experiment.list_all_processes()))
    return f"launched {experiment.name} on {cluster.backend}: {size}"


def wait_for_start(
    cluster: Cluster, name: str, until: Until, *, timeout: float | None
) -> ExperimentStatus:
    """Wait until every process has started or is ready, depending on ``until``.

    Return the experiment's status. A process that has exited or was not ready in time does not
    prolong the wait. Raises `TimeoutError` after ``timeout`` seconds.
    """
    with (
        show_progress(f"waiting for {name}") as shown,
        reporting_progress(shown, views.startup_line) as on_change,
    ):
        return cluster.wait(name, until=until, timeout=timeout, on_change=on_change)


def report_failures(status: ExperimentStatus, until: Until) -> int:
    """Print a line for each process that failed or was not ready in time, and return the exit code.

    The exit code is that of the first process that failed. If no process failed, it is 1 if a
    process was not ready in time, and 0 otherwise. Failed processes take precedence, because it
    is unknown when a process missed its time limit.
    """
    late = []
    if until == "ready":
        late = [process for process in status if process.not_ready_in_time]
    for line in views.failure_lines(status):
        print_note(line)
    for process in late:
        print_note(views.failure_line(process))
    if status.exit_code:
        return status.exit_code
    return FAILED if late else OK


def wait_until_finished(
    cluster: Cluster, name: str, *, timeout: float | None, as_json: bool
) -> int:
    """Wait until every process has exited, print the final status, and return the exit code.

    Raises `TimeoutError` if the experiment is still running after ``timeout`` seconds.
    """
    with show_progress() as shown, reporting_progress(shown, views.waiting_line) as on_change:
        status = cluster.wait(name, timeout=timeout, on_change=on_change)
    if as_json:
        show_json({**status.to_dict(), "exit_code": status.exit_code})
    else:
        print(views.summary_line(status))
    for line in views.failure_lines(status):
        print_note(line)
    return status.exit_code


def launch_and_follow(
    cluster: Cluster, experiment: Experiment, *, force: bool, as_json: bool
) -> int:
    """Launch an experiment and show the output of its processes until all have exited.

    Return the experiment's exit code, 130 after Ctrl-C, or 1 if another command has deleted the
    experiment.
    """
    name = experiment.name
    interruptions = Interruptions(cluster, name)
    try:
        with interruptions.handled():
            launch_with_progress(cluster, experiment, force=force)
            interruptions.launched = True
            print_note(launch_summary(cluster, experiment))
            with reporting_pending_processes(cluster, name):
                _follow_logs(cluster, experiment, as_json)
        status = cluster.wait(name)
    except NotFound:
        print_note(f"symphony: experiment {name!r} was deleted")
        return INTERRUPTED if interruptions.count else FAILED
    except BrokenPipeError:
        print_note(f"symphony: standard output was closed; experiment {name!r} keeps running")
        raise
    if as_json:
        show_json({**status.to_dict(), "exit_code": status.exit_code}, compact=True)
    for line in views.failure_lines(status):
        print_note(line)
    return INTERRUPTED if interruptions.count else status.exit_code


def _follow_logs(cluster: Cluster, experiment: Experiment, as_json: bool) -> None:
    names = [process.name for process in experiment.list_all_processes()]
    form = log_formatter(names, as_json=as_json, colour=has_colour(sys.stdout))
    show_lines(cluster.iter_logs(experiment.name, follow=True), form, at_once=True)
