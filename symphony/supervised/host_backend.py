"""The part of the clusters of supervised experiments that is not about launches and changes.

It reads the run directories, and sends requests to supervisors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.cluster import Manifest
from symphony.cluster.backend import Backend, ProcessRequest, Watch
from symphony.errors import BackendError
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader
from symphony.supervised.record.status import StatusReader

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.usage import ExperimentUsage

_STATUS_CHECK_SECONDS = 1.0


class HostBackend(Backend[Manifest]):
    """The experiments in the directory ``root``.

    * ``find`` returns the run directory of an experiment. Raises `NotFound`.
    * ``make_reader`` returns a reader of the status of a run, and ``describe`` its status.
    * ``send`` sends a request to the supervisor of a pinned run; see
      `symphony.supervised.user_requests.requests.send_request`.
    * ``diff`` and ``change`` compare and change a running experiment, and ``usage`` returns samples
      of the resource use of a run.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        find: Callable[[str], RunDirectory],
        make_reader: Callable[[RunDirectory], StatusReader],
        describe: Callable[[RunDirectory], ExperimentStatus],
        send: Callable[..., None],
        diff: Callable[..., Changes],
        change: Callable[..., Changes],
        usage: Callable[[RunDirectory, Collection[str] | None, float], Iterator[ExperimentUsage]],
    ) -> None:
        super().__init__(name)
        self._root = root
        self._find = find
        self._make_reader = make_reader
        self._describe = describe
        self._send = send
        self._diff = diff
        self._change = change
        self._usage = usage

    # --- observing ---

    def names(self) -> Collection[str]:
        """Return the names of the run directories."""
        return [run.name for run in directory.find_all(self._root)]

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the status that the manifest, the events and the running processes show."""
        return self._describe(self._find(experiment))

    @contextlib.contextmanager
    def watch(self, experiment: str) -> Iterator[Watch]:
        """Read only new events, as soon as they are written."""
        from symphony.supervised.read.log_files import growing

        run = self._find(experiment)
        reader = self._make_reader(run)
        with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
            yield Watch(reader.read, wait_for_events)

    def record(self, experiment: str) -> Mapping[str, Any]:
        """Return the recorded description of the launch."""
        from symphony.archive.run_record import RECORD_FILE, read_json

        run = self._find(experiment)
        record = read_json(run.file(RECORD_FILE))
        if record is None:
            raise BackendError(
                f"the record of experiment {experiment!r} cannot be read ({run.path / RECORD_FILE} "
                "is missing or damaged); launch it again"
            )
        return record

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent]:
        """Yield the recorded events."""
        from symphony.supervised.read.log_files import growing
        from symphony.supervised.record.event_stream import EventStream

        # A run that is deleted is read to its end.
        with self._find(experiment).pin() as run:
            stream = EventStream(run, self._make_reader(run))
            if not follow:
                yield from stream.read_new()
                return
            is_over = stream.end_check(names)
            with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
                while True:
                    # No event is recorded after the end, so the check comes before the read.
                    was_over = is_over()
                    yield from stream.read_new()
                    if was_over or stream.has_finished:
                        return
                    # A supervisor that is killed writes no event, so the status is also checked at
                    # regular intervals.
                    wait_for_events(_STATUS_CHECK_SECONDS)

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the command, resources, addresses and events of a process."""
        from symphony.supervised.read.read_details import process_details

        run = self._find(experiment)
        with run.report_damage(run.events):
            events = EventReader(run.events).read_new()
        return process_details(run.load_manifest(), process, events, run.log(process.name))

    def topology(self, experiment: str) -> Topology:
        """Return the connections in the manifest."""
        from symphony.supervised.read.read_details import topology

        run = self._find(experiment)
        status = self._describe(run)
        return topology(run.load_manifest(), status)

    def external_addresses(self, experiment: str) -> Mapping[str, str]:
        """Return the addresses in the manifest."""
        manifest = self._find(experiment).load_manifest()
        return {service: manifest["services"][service] for service in manifest["exposed"]}

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the operating system reports about the processes."""
        return self._usage(self._find(experiment), names, interval)

    # --- changing ---

    def diff(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Compare the manifest of a running experiment with a new one."""
        return self._diff(experiment, start=start)

    def change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Send a new manifest to the supervisor."""
        return self._change(experiment, start=start)

    def request(self, experiment: str, request: ProcessRequest) -> None:
        """Send a request to the supervisor, and wait until it is done."""
        with self._find(experiment).pin() as run:
            if request.kind == "stop" and _are_stopped(run, request):
                # Otherwise, a stop is not done when its processes have exited, because programs
                # that they have left behind may still be running.
                return
            values: dict[str, Any] = {"request": request.kind, "names": list(request.names)}
            if request.kind in ("stop", "restart"):
                values["grace"] = request.grace
            elif request.kind == "signal":
                values["signal"] = request.signal
                if request.force:
                    values["force"] = True
            waits = request.kind == "start"
            self._send(run, values, timeout=request.timeout, waits=waits)


def unobserved_host(run: RunDirectory, status: ExperimentStatus) -> str | None:
    """Return the other host on which processes of the experiment can be running, or None."""
    if all(process.state is not State.UNKNOWN for process in status):
        return None
    return run.other_host()


def _are_stopped(run: RunDirectory, request: ProcessRequest) -> bool:
    """Return whether the processes of a request have exited, as far as this machine knows."""
    return (
        _have_ended(request.status, request.names) and unobserved_host(run, request.status) is None
    )


def _have_ended(status: ExperimentStatus, names: Sequence[str]) -> bool:
    return all(process.state in ENDED for process in status if process.name in names)
