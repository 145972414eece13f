"""What a backend does: the methods that `Cluster` calls, and that differ between platforms.

All else that a user can do with a cluster is written once, in `Cluster`, with these methods. It
checks the arguments, finds the processes that a user has named, and raises the errors that all
backends share.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from symphony.cluster.backend.process_access import Access, NamedProcess, Place
from symphony.cluster.results import WatchedStatuses
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.cluster.backend.records import Records
    from symphony.cluster.matching import Until
    from symphony.cluster.results import Manifest
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.resolution.addresses import AddressScheme
    from symphony.plan.resolve import Plan
    from symphony.process_details import ProcessDetails
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.usage import ExperimentUsage

# The class of the manifests of a backend.
ManifestT = TypeVar("ManifestT", bound="Manifest")

# How often the status of an experiment is read if the backend does not report changes.
POLL_SECONDS = 0.1

_NO_CHANGES = "cannot change {!r} while it is running; launch it again with force"


class Watch(NamedTuple):
    """The observation of one experiment over some time.

    ``read`` returns the current status, and raises `NotFound` if the experiment does not exist any
    more. ``wait`` blocks until the status may have changed, for at most a number of seconds.
    """

    read: Callable[[], ExperimentStatus]
    wait: Callable[[float], object]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The output to read: that of processes since a time, or the last lines of it.

    ``processes`` is what the user has written; None stands for all processes. ``find_names``
    returns the names of the processes that are selected at the time of the call, because a change
    can add processes. ``since`` is in seconds since the epoch, and ``tail`` is a number of lines.
    With ``follow``, the output continues until the processes have exited. With ``events``, the
    events of these processes are included, and those of the experiment if all of its processes are
    selected. With ``tail``, only new events are included.
    """

    processes: Sequence[str] | None = None
    find_names: Callable[[], Sequence[str]]
    since: float | None = None
    tail: int | None = None
    follow: bool = False
    events: bool = False

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the processes that were selected when this attribute was read first.

        Raises `NotFound` if a name selects no process.
        """
        return self.find_names()


class LogPart(NamedTuple):
    """The part of a log to read: from the time ``since`` on, or the last ``tail`` lines of it.

    ``since`` is in seconds since the epoch. With ``previous``, only the output before the last
    restart is read.
    """

    since: float | None = None
    tail: int | None = None
    previous: bool = False


@dataclass(frozen=True, kw_only=True)
class ProcessRequest:
    """A request about processes of a running experiment.

    ``kind`` is ``stop``, ``start``, ``restart`` or ``signal``. ``processes`` is what the user has
    written; None stands for all processes. ``grace`` is the time in seconds after which a process
    that is being stopped is killed, or None for its own grace period. For ``signal``, ``signal`` is
    the number of the signal, and ``force`` permits one that ends the process. ``timeout`` is how
    many seconds to wait until the request is done, or None. ``find`` returns the status of the
    experiment before the request, and the names of the processes that the request is about.
    """

    kind: str
    processes: Sequence[str] | None
    find: Callable[[], tuple[ExperimentStatus, Sequence[str]]]
    grace: float | None = None
    signal: int = 0
    force: bool = False
    timeout: float | None = None

    @cached_property
    def _found(self) -> tuple[ExperimentStatus, Sequence[str]]:
        return self.find()

    @property
    def status(self) -> ExperimentStatus:
        """The status of the experiment before the request."""
        return self._found[0]

    @property
    def names(self) -> Sequence[str]:
        """The names of the processes. Raises `NotFound` if a name selects no process."""
        return self._found[1]


class WaitGoal(NamedTuple):
    """What to wait for: that the processes have reached the state ``until``; see `Cluster.wait`.

    ``processes`` is what the user has written; None stands for all processes. ``timeout`` is in
    seconds, or None.
    """

    until: Until = "ended"
    processes: Sequence[str] | None = None
    timeout: float | None = None


class Backend(Access, Generic[ManifestT]):
    """The part of a cluster that depends on the platform. Each backend defines one subclass.

    A backend has to define `reserve`, `render`, `create`, `delete`, `names`, `observe` and
    `output`. All other methods are optional: by default, they raise `Unsupported`, or do what
    their documentation says. Those that reach processes are in `Access`. A backend
    declares in `symphony.hookspecs.BackendInfo` which capabilities it has.

    ``name`` is the name of the backend. The names of experiments and processes are those that
    exist, and not patterns. Times are in seconds since the epoch. Every method raises
    `BackendError` if the platform fails, with one line that says what failed and how to fix it, and
    `NotFound` if the experiment does not exist; see
    `symphony.cluster.matching.experiment_not_found`.
    """

    # True if `output` yields events between the lines if a selection includes them. Otherwise, the
    # events come after all lines.
    output_includes_events: bool = False
    # True if `output` does so if the output is followed.
    followed_output_includes_events: bool = False
    # True if the processes of a group can only be started together.
    groups_start_together: bool = False

    # --- launching ---

    def reserve(self, experiment: str) -> contextlib.AbstractContextManager[AddressScheme]:
        """Return a context with the rules for the addresses of a plan of an experiment.

        The ports that the rules have permitted are reserved until the end of the context, in which
        `create` is called. The ports of a running experiment with the same name count as free,
        because a launch replaces that experiment.
        """
        del experiment
        raise self.unsupported("cannot assign addresses")

    def render(self, plan: Plan) -> ManifestT:
        """Return the description of everything that a launch of ``plan`` creates. Pure.

        Raises `SpecError` if the plan cannot be launched.
        """
        raise self.unsupported(f"cannot launch {plan.experiment!r}")

    def check(self, manifest: ManifestT) -> str:
        """Have the platform validate ``manifest`` without creating anything, and return its answer,
        which is one line.
        """
        raise self.unsupported(f"has no server that can check {manifest.experiment!r}")

    def create(self, manifest: ManifestT, record: Mapping[str, Any]) -> None:
        """Create everything that ``manifest`` describes, or nothing.

        Return when all processes have started that do not wait for others. The experiment goes on
        after this program has exited. ``record`` is the description of the launch, which `record`
        returns; see `symphony.archive.run_record.launch_record`. Raises `AlreadyExists` if another
        program has used the name in the meantime, and `LaunchFailed` if a process cannot be
        created.
        """
        del record
        raise self.unsupported(f"cannot launch {manifest.experiment!r}")

    # --- ending ---

    def stop(self, experiment: str, *, at_once: bool) -> None:
        """Stop an experiment for good, but keep its logs and its status; see `Cluster.stop`."""
        del experiment, at_once
        raise self.unsupported("cannot stop an experiment and keep it; delete it")

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment and remove everything that `create` has created.

        If the experiment does not exist, nothing happens. If the backend keeps records of runs, the
        record and the logs move to the archive, unless ``purge`` is true. The other arguments are
        those of `Cluster.delete`.
        """
        del in_order, at_once, purge
        raise self.unsupported(f"cannot delete {experiment!r}")

    # --- observing ---

    def names(self) -> Collection[str]:
        """Return the names of the experiments that symphony has launched, in any order."""
        raise self.unsupported("cannot list experiments")

    @property
    def location(self) -> str:
        """Where the experiments are, such as a directory, for messages, or ``""``."""
        return ""

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the current status of an experiment and of its processes.

        A status is observed, not guessed: if the exit of a process was not observed, its state
        is ``unknown``.
        """
        raise self.unsupported(f"cannot report the status of {experiment!r}")

    @contextlib.contextmanager
    def watch(self, experiment: str) -> Iterator[Watch]:
        """Return a context in which an experiment is observed.

        By default, `observe` is called several times in a second. A platform that reports changes,
        or of which only what is new can be read, does this faster and with less work.
        """
        yield Watch(
            partial(self.observe, experiment),
            lambda seconds: time.sleep(min(seconds, POLL_SECONDS)),
        )

    def observe_all(self, names: Sequence[str]) -> Mapping[str, ExperimentStatus]:
        """Return the statuses of those of the experiments that can be read together.

        `observe` reads the others. By default, all are read one by one.
        """
        del names
        return {}

    @contextlib.contextmanager
    def watch_statuses(self, experiment: str) -> Iterator[Callable[[], WatchedStatuses]]:
        """Return a context with a function that returns the current status of an experiment.

        During an outage, it returns the latest known status with a message. If the experiment is
        launched again, the status is that of the new run. By default, each call calls `observe`.
        """
        yield lambda: WatchedStatuses([self.observe(experiment)])

    @contextlib.contextmanager
    def watch_all(self) -> Iterator[Callable[[], WatchedStatuses] | None]:
        """Return a context with a function that returns the current statuses of all experiments.

        The context contains None if all experiments cannot be watched together.
        """
        yield None

    def wait(
        self, experiment: str, goal: WaitGoal, on_change: Callable[[ExperimentStatus], None] | None
    ) -> ExperimentStatus:
        """Wait until an experiment has reached a goal, and return its status; see `Cluster.wait`.

        By default, the experiment is observed with `watch`.
        """
        from symphony.cluster.backend.waiting import wait_until

        with self.watch(experiment) as watch:
            return wait_until(watch.read, watch.wait, goal, on_change)

    def record(self, experiment: str) -> Mapping[str, Any]:
        """Return the description of the launch that `create` has received."""
        raise self.unsupported(f"keeps no description of {experiment!r}")

    @cached_property
    def records(self) -> Records:
        """What is kept of experiments and runs, such as resource use. By default, nothing is."""
        from symphony.cluster.backend.records import Records

        return Records(self.observe)

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent] | None:
        """Return the recorded events of an experiment in the order in which they happened.

        With ``follow``, they continue until the experiment has finished or was deleted, or until
        the processes ``names`` have exited. Events of other processes can be included. None means
        that events are not recorded. They are then derived from the statuses, and contain only what
        can still be observed.
        """
        del experiment, names, follow
        return None

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the settings, addresses and events of a process, as far as they are known."""
        from symphony.process_details import ProcessDetails

        del experiment
        return ProcessDetails(status=process)

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield samples of the resources that processes use, until the experiment has finished.

        ``names`` contains the processes, and a change can add some. None stands for all processes.
        ``interval`` is in seconds.
        """
        del names, interval
        raise self.unsupported(f"cannot report the resource use of {experiment!r}")

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output of processes in the order in which it was written.

        The text of the blocks is that of `symphony.log_text`, so that bytes which are not valid
        UTF-8 are kept.
        """
        del selection
        raise self.unsupported(f"keeps no output of {experiment!r}")

    def log(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        """Yield the log of a process in pieces, as the process has written it.

        The text is that of `symphony.log_text`. By default, the pieces are the blocks of `output`.
        Raises `Unsupported` for the output before a restart if it is not kept separately.
        """
        from symphony.log_blocks import LogBlock

        if part.previous:
            raise self.unsupported(
                "keeps one log of a process, which continues after a restart: "
                f"{process!r} has no previous one"
            )
        selection = Selection(find_names=lambda: [process], since=part.since, tail=part.tail)
        items = self.output(experiment, selection)
        return (item.text for item in items if isinstance(item, LogBlock))

    def start_time(self, since: float | str) -> float:
        """Return the time since which output is read; see `Cluster.iter_logs`.

        A platform with a clock of its own measures durations by it.
        """
        from symphony.cluster.since import parse_since

        return parse_since(since, time.time())

    # --- changing ---

    def diff(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Return how a running experiment differs from ``experiment``; see `Cluster.diff`."""
        del start
        raise self.unsupported(_NO_CHANGES.format(experiment.name))

    def change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Change a running experiment, and return what was changed; see `Cluster.up`.

        The experiment can have been changed since `diff` was called, so compare it again while no
        other change is possible. Raises `AlreadyExists` if it would have to be launched again.
        """
        del start
        raise self.unsupported(_NO_CHANGES.format(experiment.name))

    def request(self, experiment: str, request: ProcessRequest) -> Sequence[ProcessStatus] | None:
        """Stop, start, restart or signal processes, and return when this is done.

        Return the statuses of the processes, or None if they have to be read. See
        `Cluster.stop_processes` and the methods after it. Raises `TimeoutError`.
        """
        del request
        raise self.unsupported(
            f"cannot stop, start, restart or signal single processes of {experiment!r}; delete the "
            "experiment, and launch it again"
        )

    # --- for the methods above ---


__all__ = [
    "Access",
    "Backend",
    "LogPart",
    "NamedProcess",
    "Place",
    "ProcessRequest",
    "Selection",
    "WaitGoal",
    "Watch",
]
