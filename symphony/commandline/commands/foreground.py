"""Launch an experiment in the foreground, or wait for an experiment.

The module shows progress and logs, handles signals, and determines the exit code.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from symphony.cluster.hidden_output import shown_status, without_secrets
from symphony.cluster.matching import narrowed, select_processes
from symphony.code.take_snapshots import packing_once
from symphony.commandline.commands.last_lines import print_last_lines
from symphony.commandline.commands.stuck import Stuck, observing_pending_processes
from symphony.commandline.exit_codes import (
    FAILED,
    OK,
    Terminated,
    exit_code,
    signal_exit_code,
)
from symphony.commandline.output import views
from symphony.commandline.output.byte_progress import ByteProgress
from symphony.commandline.output.pending_reasons import reporting_progress
from symphony.commandline.output.printing import LogFormatter, show_json, show_output
from symphony.commandline.output.terminal import (
    ProgressLine,
    print_note,
    print_text,
    show_progress,
)
from symphony.commandline.parsing import completion_cache
from symphony.errors import LaunchIncomplete, NotFound, Unsupported

if TYPE_CHECKING:
    from symphony.cluster import Cluster, Manifest
    from symphony.cluster.matching import Until
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus, ProcessStatus


# A job scheduler or timeout(1) sends SIGTERM, and a terminal that is closed sends SIGHUP.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """A handler for Ctrl-C, SIGTERM and SIGHUP that stops an experiment.

    The first signal stops the experiment. After that, SIGTERM and SIGHUP have no effect, because
    timeout(1) sends a signal twice, but Ctrl-C kills the experiment, and another Ctrl-C raises
    KeyboardInterrupt. A separate thread stops the experiment, so that the caller can show the
    output of the processes until they exit. ``exit_code`` is None until the first signal arrives.

    Until ``launched`` is set, the signals raise KeyboardInterrupt, which causes the launch to be
    rolled back.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.launched = False
        self.exit_code: int | None = None
        self._count = 0
        self._cluster = cluster
        self._name = name
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals inside the block.

        After a signal, the context manager does not exit until the experiment has been stopped.

        Raises the first error that occurred while the experiment was being stopped.
        """
        with _handling_signals(self._on_signal):
            try:
                yield
            except OSError:
                # Output fails after the terminal was closed. The experiment must still be stopped.
                self._wait_until_stopped()
                raise
            self._wait_until_stopped()
        if self._errors:
            raise self._errors[0]

    def _wait_until_stopped(self) -> None:
        for thread in self._threads:
            thread.join()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT and self._count:
            return
        self._count += 1
        if self.exit_code is None:
            self.exit_code = signal_exit_code(number)
        if not self.launched or self._count > 2:
            raise _interruption(number)
        # A signal can interrupt a write, and writing to a stream is not reentrant. Another thread
        # therefore writes the messages.
        thread = threading.Thread(target=self._stop, args=(self._count == 2, number), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop(self, at_once: bool, number: int) -> None:
        if at_once:
            message = f"killing {self._name!r}"
        elif number == signal.SIGINT:
            message = f"stopping {self._name!r}; press Ctrl-C again to kill it"
        else:
            message = f"stopping {self._name!r} because of {signal.Signals(number).name}"
        # The terminal may have been closed.
        with contextlib.suppress(OSError, ValueError):
            print_note(f"symphony: {message}")
        try:
            stop_or_delete(self._cluster, self._name, at_once=at_once)
        except NotFound:
            pass  # Another command deleted the experiment, so there is nothing to stop.
        except Exception as exc:
            self._errors.append(exc)


def _interruption(number: int) -> KeyboardInterrupt:
    """Return the exception for a signal that interrupts the command."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


@contextlib.contextmanager
def _handling_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP inside the block, except for signals that are ignored.

    For example, nohup(1) ignores SIGHUP.
    """
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number in _SIGNALS if previous[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, previous[number])


def stop_or_delete(cluster: Cluster, name: str, *, at_once: bool) -> None:
    """Stop an experiment and keep its logs, or delete it if the backend cannot stop experiments."""
    try:
        cluster.stop(name, at_once=at_once)
    except Unsupported:
        cluster.delete(name)


def launch_with_progress(
    cluster: Cluster, experiment: Experiment, *, force: bool, queue: bool = False
) -> Manifest:
    """Launch an experiment, and show its progress on the terminal.

    With ``queue``, the launch waits for free GPUs, and prints the reason whenever it has changed.
    """
    size = views.count_processes(len(experiment.list_all_processes()))
    with (
        show_progress(f"launching {experiment.name} ({size})") as shown,
        packing_once(ByteProgress(shown).report),
        _announcing_rollback(shown, experiment.name),
        reporting_progress(
            shown, lambda status: f"launching {views.startup_line(status)}"
        ) as on_change,
    ):

        def report_wait(reason: str) -> None:
            shown.clear()
            print_note(f"symphony: {experiment.name}: {reason}")

        manifest = cluster.launch(
            experiment, force=force, queue=queue, on_change=on_change, on_wait=report_wait
        )
    completion_cache.clear_cached_names()
    for note in manifest.notes:
        print_note(f"symphony: {note}")
    return manifest


@contextlib.contextmanager
def _announcing_rollback(shown: ProgressLine, name: str) -> Iterator[None]:
    """Show a message as soon as Ctrl-C, SIGTERM or SIGHUP interrupts the launch.

    On a cluster, rolling back a launch can take several seconds. Without the message, the user
    might believe that Ctrl-C had no effect. A second SIGTERM or SIGHUP does not interrupt the
    rollback.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can install signal handlers.
        yield
        return

    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    is_interrupted = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        if is_interrupted and number != signal.SIGINT:
            return
        is_interrupted = True
        # The terminal may have been closed.
        with contextlib.suppress(OSError):
            shown.update_from_signal_handler(f"interrupted: ending the launch of {name}")
        handler = previous[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            raise _interruption(number)

    with _handling_signals(on_signal):
        yield


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
        status = cluster.wait(name, until=until, timeout=timeout, on_change=on_change)
    return shown_status(cluster, status)


def report_failures(cluster: Cluster, status: ExperimentStatus, until: Until) -> int:
    """Print a line for each process that failed or was not ready in time, and the last lines of the
    first ones. Return the exit code.

    The exit code is that of the first process that failed. If no process failed, it is 1 if a
    process was not ready in time, and 0 otherwise. Failed processes take precedence, because it
    is unknown when a process missed its time limit.
    """
    late = []
    if until == "ready":
        late = [process for process in status if process.not_ready_in_time]
    _print_failures(cluster, status, late)
    if status.exit_code:
        return status.exit_code
    return FAILED if late else OK


def _print_failures(
    cluster: Cluster, status: ExperimentStatus, late: Sequence[ProcessStatus] = ()
) -> None:
    """Print a line for each failed process and for those in ``late``, which were not ready in time,
    and the last lines of the logs of the first ones.
    """
    for line in views.failure_lines(status):
        print_note(line)
    for process in late:
        print_note(views.failure_line(process))
    print_last_lines(cluster, status.name, [*views.failed_processes(status), *late])


def wait_until_finished(
    cluster: Cluster,
    name: str,
    *,
    processes: Sequence[str] | None = None,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Wait until processes have exited, print their final status and why they have failed, and
    return the exit code.

    ``processes`` are the names of processes. None means all processes. Raises `TimeoutError` if
    they are still running after ``timeout`` seconds.
    """

    def describe(status: ExperimentStatus) -> str:
        return views.waiting_line(narrowed(status, select_processes(status, processes)))

    try:
        with show_progress() as shown, reporting_progress(shown, describe) as on_change:
            found = cluster.wait(name, timeout=timeout, on_change=on_change, processes=processes)
        whole = shown_status(cluster, found)
    except TimeoutError as exc:
        if as_json:
            present = shown_status(cluster, cluster.describe_experiment(name))
            _show_final(present, processes, exit_code(exc))
        raise
    status = narrowed(whole, select_processes(whole, processes))
    if as_json:
        _show_final(whole, processes, status.exit_code)
    else:
        print_text(views.summary_line(status))
    _print_failures(cluster, status)
    return status.exit_code


def _show_final(whole: ExperimentStatus, processes: Sequence[str] | None, code: int) -> None:
    """Print the status of the selected processes of an experiment as JSON, with the exit code."""
    status = narrowed(whole, select_processes(whole, processes))
    show_json({**status.to_dict(), "exit_code": code})


def launch_and_follow(
    cluster: Cluster, experiment: Experiment, *, force: bool, as_json: bool, queue: bool = False
) -> int:
    """Launch an experiment and show the output of its processes until all have exited.

    ``queue`` is that of `launch_with_progress`.

    Return the experiment's exit code, 128 + n after signal n, or 1 if another command has deleted
    the experiment.
    """
    name = experiment.name
    interruptions = Interruptions(cluster, name)
    try:
        with interruptions.handled():
            launch_with_progress(cluster, experiment, force=force, queue=queue)
            interruptions.launched = True
            print_note(launch_summary(cluster, experiment))
            with observing_pending_processes(cluster, name):
                _follow_logs(cluster, experiment, as_json)
        status = shown_status(cluster, cluster.wait(name))
    except Stuck as exc:
        return _report_stuck(shown_status(cluster, exc.status), as_json=as_json)
    except LaunchIncomplete:
        if interruptions.exit_code is None:
            raise
        # The processes that run already are not wanted any more.
        stop_or_delete(cluster, name, at_once=True)
        return interruptions.exit_code
    except NotFound:
        print_note(f"symphony: experiment {name!r} was deleted")
        return FAILED if interruptions.exit_code is None else interruptions.exit_code
    except BrokenPipeError:
        print_note(f"symphony: standard output was closed; experiment {name!r} keeps running")
        raise
    if as_json:
        show_json({**status.to_dict(), "exit_code": status.exit_code}, compact=True)
    report_end(status)
    return status.exit_code if interruptions.exit_code is None else interruptions.exit_code


def _report_stuck(status: ExperimentStatus, *, as_json: bool) -> int:
    """Report why no process of an experiment can start any more, and return the exit code."""
    if as_json:
        show_json({**status.to_dict(), "exit_code": status.exit_code or FAILED}, compact=True)
    print_note(f"{views.summary_line(status)}; no process is running, and none can start by itself")
    for process in status:
        if process.state.value == "pending":
            print_note(f"{process.path} pending: {process.reason}")
    for line in views.failure_lines(status):
        print_note(line)
    stopped = " ".join(process.path for process in status if process.stopped)
    print_note(f"to continue: symphony start {status.name} {stopped}")
    return status.exit_code or FAILED


def _follow_logs(cluster: Cluster, experiment: Experiment, as_json: bool) -> None:
    names = [process.name for process in experiment.list_all_processes()]
    formatter = LogFormatter(names, as_json=as_json)
    items = cluster.iter_output(experiment.name, follow=True, events=True, exact=True)
    shown = without_secrets(items, cluster.hidden_values(experiment.name))
    show_output(_without_pending_reasons(shown), formatter, at_once=True)


def _without_pending_reasons(
    items: Iterable[LogBlock | ExperimentEvent],
) -> Iterator[LogBlock | ExperimentEvent]:
    """Yield all items except the warnings about processes that have not started.

    `reporting_pending_processes` reports the reasons why these processes are pending.
    """
    from symphony.events import EventKind, ExperimentEvent

    started: set[str | None] = set()
    for item in items:
        if isinstance(item, ExperimentEvent):
            if item.kind is EventKind.STARTED:
                started.add(item.process)
            is_about_process = item.process is not None
            if item.kind is EventKind.WARNING and is_about_process and item.process not in started:
                continue
        yield item


def report_end(status: ExperimentStatus) -> None:
    """Print how an experiment has ended, and a line for each process that failed."""
    print_note(views.closing_line(status))
    for line in views.failure_lines(status):
        print_note(line)
