"""The part of a backend that reads experiments: their states, events, details and output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from symphony.cluster.backend.recorded_runs import RecordedRuns
from symphony.cluster.matching import unsupported
from symphony.cluster.results import WatchedStatuses
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.cluster.matching import Until
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.status import ExperimentStatus, ProcessStatus
    from symphony.usage import ExperimentUsage

# How often the status of an experiment is read if the backend does not report changes.
POLL_SECONDS = 0.1


class Watch(NamedTuple):
    """The observation of one experiment, or of all experiments, over some time.

    ``read`` returns the current statuses. If one experiment is observed, it returns one status, and
    raises `NotFound` if the experiment does not exist any more. During an outage, it can return the
    latest known statuses with a message. ``wait`` blocks until a status may have changed, for at
    most a number of seconds.
    """

    read: Callable[[], WatchedStatuses]
    wait: Callable[[float], object]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The output to read: that of processes since a time, or the last lines of it.

    ``processes`` is what the user has written; None stands for all processes. ``find_names``
    returns the names of the processes that are selected at the time of the call, because a change
    can add processes. ``since`` is in seconds since the epoch, and ``given_since`` is what the user
    has written, for a platform with a clock of its own. ``tail`` is a number of lines.
    With ``follow``, the output continues until the processes have exited. With ``events``, the
    events of these processes are included, and those of the experiment if all of its processes are
    selected. With ``tail``, only new events are included.

    With ``as_written``, the output of one process is read unchanged. The blocks can then end within
    a line, and need no times. With ``previous``, it is the output before the last restart of the
    process, which is only read if `keeps_previous_output` is true.
    """

    processes: Sequence[str] | None = None
    find_names: Callable[[], Sequence[str]]
    since: float | None = None
    given_since: float | str | None = None
    tail: int | None = None
    follow: bool = False
    events: bool = False
    as_written: bool = False
    previous: bool = False

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the processes that were selected when this attribute was read first.

        Raises `NotFound` if a name selects no process.
        """
        return self.find_names()


class WaitGoal(NamedTuple):
    """The goal of a wait: that the processes have reached the state ``until``; see `Cluster.wait`.

    ``processes`` is what the user has written; None stands for all processes. ``timeout`` is in
    seconds, or None.
    """

    until: Until = "ended"
    processes: Sequence[str] | None = None
    timeout: float | None = None


def wait_for_poll(seconds: float) -> None:
    """Wait until a status is read again, if the backend does not report changes."""
    time.sleep(min(seconds, POLL_SECONDS))


class Inspection:
    """The methods that read experiments. `names`, `observe` and `output` are required.

    ``name`` is the name of the backend.
    """

    # True if `output` yields events between the lines if a selection includes them. Otherwise, the
    # events come after all lines.
    output_includes_events: bool = False
    # True if `output` does so if the output is followed.
    followed_output_includes_events: bool = False
    # True if the output of a process before its last restart is kept separately.
    keeps_previous_output: bool = False

    def __init__(self, name: str) -> None:
        self.name = name

    def names(self) -> Collection[str]:
        """Return the names of the experiments that symphony has launched, in any order."""
        raise unsupported(self.name, "cannot list experiments")

    @property
    def location(self) -> str:
        """The place of the experiments, such as a directory, for messages, or ``""``."""
        return ""

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the current status of an experiment and of its processes.

        A status is observed, not guessed: if the exit of a process was not observed, its state
        is ``unknown``.
        """
        raise unsupported(self.name, f"cannot report the status of {experiment!r}")

    @contextlib.contextmanager
    def watch(self, experiment: str | None, *, follow: bool = True) -> Iterator[Watch]:
        """Return a context in which an experiment is observed, or all of them if it is None.

        Without ``follow``, the status is read only once. By default, `observe` is called several
        times in a second. A platform that reports changes, or of which only what is new can be
        read, does this faster and with less work. Raises `Unsupported` if the experiments can only
        be observed one by one, which is the default. A status that is missing is then read with
        `observe`.
        """
        del follow
        observe = partial(self.observe, self._single(experiment))
        yield Watch(lambda: WatchedStatuses([observe()]), wait_for_poll)

    def _single(self, experiment: str | None) -> str:
        """Return the name of an experiment. Raises `Unsupported` if it stands for all of them."""
        if experiment is None:
            raise unsupported(self.name, "cannot observe all experiments together")
        return experiment

    def wait(
        self, experiment: str, goal: WaitGoal, on_change: Callable[[ExperimentStatus], None] | None
    ) -> ExperimentStatus:
        """Wait until an experiment has reached a goal, and return its status; see `Cluster.wait`.

        By default, the experiment is observed with `watch`.
        """
        from symphony.cluster.backend.waiting import wait_until

        with self.watch(experiment) as watch:
            return wait_until(watch, goal, on_change)

    def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
        """Return files of the record of an experiment's run, by their names.

        ``pattern`` is ``RECORD_FILE``, the description of the launch, or ``SECRET_FILES``, the
        contents of the secrets, both of `symphony.archive.run_record`, or ``USAGE_FILE`` of
        `symphony.archive.archived_usage`, the resource use. A file that does not exist, or that
        this user cannot read, is missing in the result. By default, no record is kept.
        """
        del pattern
        self.observe(experiment)
        return {}

    @property
    def recorded_runs(self) -> RecordedRuns:
        """The object that finds, reads and continues the recorded runs of experiments."""
        return RecordedRuns(self)

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

    def topology(self, experiment: str) -> Topology:
        """Return the processes, groups and services of a launched experiment."""
        raise unsupported(self.name, f"cannot report the connections of {experiment!r}")

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the external addresses ``host:port`` of the exposed services of an experiment.

        An address is None if it is not known yet, or if finding it takes long. With ``service``,
        the address of this service is found in any case, and those of the others can be missing.
        """
        del experiment, service
        raise unsupported(self.name, "cannot expose services")

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield samples of the resources that processes use, until the experiment has finished.

        ``names`` contains the processes, and a change can add some. None stands for all processes.
        ``interval`` is in seconds.
        """
        del names, interval
        raise unsupported(self.name, f"cannot report the resource use of {experiment!r}")

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output of processes in the order in which it was written.

        The text of the blocks is that of `symphony.log_text`, so that bytes which are not valid
        UTF-8 are kept.
        """
        del selection
        raise unsupported(self.name, f"keeps no output of {experiment!r}")

    def logs(self, experiment: str, names: Sequence[str] | None = None) -> Mapping[str, int]:
        """Return the names of the processes that have a log, also of those that a change removed.

        The values are the numbers of bytes that were removed at the beginnings of logs that have
        exceeded their ``log_limit``. With ``names``, only these processes are examined. A backend
        that has neither removed processes nor limits can return nothing, which is the default.
        """
        del experiment, names
        return {}
