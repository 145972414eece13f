"""Delete experiments, show what the deletions wait for, and handle Ctrl-C."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from symphony.cluster.plugins import backend_supports
from symphony.commandline.output.exit_progress import reporting_exits
from symphony.commandline.output.terminal import ProgressLine, print_note, show_progress
from symphony.errors import SymphonyError, Unsupported
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.kill_report import KillReport

# A deletion mostly waits for processes to exit, so several take hardly longer than one.
MAX_PARALLEL = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedExperiment:
    """An experiment to delete. ``size`` is the number of its processes as text, and ``kills`` the
    report of what the deletion kills.
    """

    cluster: Cluster
    name: str
    size: str
    kills: KillReport


def delete_with_progress(
    targets: Sequence[DeletedExperiment], options: Mapping[str, bool]
) -> Iterator[SymphonyError | None]:
    """Delete experiments, several at the same time, and yield the error of each, or None.

    The results have the order of ``targets``. ``options`` are the keyword arguments of
    `Cluster.delete`.

    If the backend can stop experiments, the first Ctrl-C kills their processes, and the deletions
    continue. Otherwise, or after a second Ctrl-C, KeyboardInterrupt is raised, and a note says
    which experiments may still exist.
    """
    deletions = _Deletions(targets, options)
    with show_progress(deletions.title) as shown:
        try:
            with _killing(deletions, shown):
                yield from deletions.run(shown)
        except KeyboardInterrupt:
            shown.clear()
            names = deletions.remaining
            print_note(
                f"symphony: not completely deleted: {join_names(names)}; processes may still be "
                f"stopping; 'symphony delete -f {' '.join(names)}' continues"
            )
            raise


class _Deletions:
    """Deletions that run in several threads."""

    def __init__(self, targets: Sequence[DeletedExperiment], options: Mapping[str, bool]) -> None:
        self._targets = targets
        self._options = options
        self._results: dict[int, Exception | None] = {}
        self._waiting = iter(enumerate(targets))
        self._finished: queue.SimpleQueue[tuple[int, Exception | None]] = queue.SimpleQueue()
        # Several threads write to the terminal.
        self.writing = threading.Lock()
        self.can_kill = all(backend_supports(item.cluster.backend, "stop") for item in targets)

    @property
    def title(self) -> str:
        """The deleted objects, as text for messages."""
        if len(self._targets) == 1:
            return f"deleting {self._targets[0].name} ({self._targets[0].size})"
        return f"deleting {len(self._targets)} experiments"

    @property
    def remaining(self) -> list[str]:
        """The names of the experiments that are not deleted."""
        return [item.name for index, item in enumerate(self._targets) if index not in self._results]

    def run(self, shown: ProgressLine) -> Iterator[SymphonyError | None]:
        """Delete all experiments, and yield the results in order."""
        # The threads are daemons, so that a second Ctrl-C ends the command at once.
        for number in range(min(MAX_PARALLEL, len(self._targets))):
            thread = threading.Thread(
                target=self._work, args=(shown,), daemon=True, name=f"delete-{number}"
            )
            thread.start()
        for index in range(len(self._targets)):
            while index not in self._results:
                finished, error = self._finished.get()
                self._results[finished] = error
            error = self._results[index]
            if error is not None and not isinstance(error, SymphonyError):
                raise error
            # The caller reports the result, and the threads must not write at the same time.
            with self.writing:
                shown.clear()
                yield error

    def kill(self) -> None:
        """Kill the processes of the remaining experiments."""
        for item in self._targets:
            if item.name in self.remaining:
                item.kills.cancel()
                # The deletion reports the same error. The experiment may also have been deleted.
                with contextlib.suppress(SymphonyError):
                    item.cluster.stop(item.name, at_once=True)

    def _work(self, shown: ProgressLine) -> None:
        while True:
            with self.writing:
                index, target = next(self._waiting, (None, None))
            if index is None or target is None:
                return
            error: Exception | None = None
            try:
                self._delete(target, shown)
            except Exception as exc:
                error = exc
            self._finished.put((index, error))

    def _delete(self, target: DeletedExperiment, shown: ProgressLine) -> None:
        hint = "; Ctrl-C kills them" if self.can_kill else ""
        with reporting_exits(
            target.cluster,
            target.name,
            f"deleting {target.name}",
            shown,
            writing=self.writing,
            hint=hint,
        ):
            options = _supported_options(target.cluster, self._options)
            target.cluster.delete(target.name, **options)


def _supported_options(cluster: Cluster, options: Mapping[str, bool]) -> dict[str, bool]:
    """Return the options that the cluster's method ``delete`` supports.

    A third-party backend can lack parameters. The order of a stop is only a wish, but an experiment
    is not deleted without the other options. Raises `Unsupported`.
    """
    import inspect

    parameters = inspect.signature(cluster.delete).parameters
    supported = {key: value for key, value in options.items() if key in parameters}
    missing = options.keys() - supported.keys() - {"in_order"}
    if missing:
        names = join_names(sorted(missing))
        raise Unsupported(
            f"the {cluster.backend} backend cannot delete an experiment with {names}; delete it "
            "without this option"
        )
    return supported


@contextlib.contextmanager
def _killing(deletions: _Deletions, shown: ProgressLine) -> Iterator[None]:
    """Kill the experiments' processes on the first Ctrl-C inside the block."""
    if not deletions.can_kill or threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def kill() -> None:
        with deletions.writing:
            shown.clear()
            names = ", ".join(map(repr, deletions.remaining))
            print_note(f"symphony: killing {names}")
        deletions.kill()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt
        # The signal may have interrupted the deletion at any point, so another thread acts.
        threading.Thread(target=kill, daemon=True, name="kill").start()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
