"""The part of the clusters of supervised experiments that is not about launches and changes.

It reads the run directories, and sends requests to supervisors.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.cluster import ExecResult, Manifest, Progress, Tunnel, WatchedStatuses
from symphony.cluster.backend import (
    Backend,
    LogPart,
    NamedProcess,
    Place,
    ProcessRequest,
    Selection,
    Watch,
)
from symphony.cluster.matching import find_by_path
from symphony.errors import BackendError, NotFound, SpecError, Unsupported
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader
from symphony.supervised.record.status import StatusReader

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.supervised.host_records import HostRecords
    from symphony.supervised.read.log_files import IgnoredLine
    from symphony.supervised.user_requests.requests import SupervisorLink
    from symphony.usage import ExperimentUsage

_STATUS_CHECK_SECONDS = 1.0


class HostBackend(Backend[Manifest]):
    """The experiments in the directory ``root``.

    * ``find`` returns the run directory of an experiment. Raises `NotFound`.
    * ``make_reader`` returns a reader of the status of a run, and ``describe`` its status.
    * ``send`` sends a request to the supervisor of a pinned run; see
      `symphony.supervised.user_requests.requests.send_request`.
    * ``link`` returns the way in which this program reaches the supervisor of a pinned run.
    * ``diff`` and ``change`` compare and change a running experiment, and ``delete`` deletes one.
    * ``children`` is the name of the class that starts processes, or None if no experiment is
      started again after a reboot of this machine.
    * ``clean`` returns the output of a process that a part of its log contains. The last line of a
      log is not output if it matches ``ignored_last_line``.
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
        delete: Callable[..., None],
        link: Callable[[RunDirectory], SupervisorLink],
        clean: Callable[[str], str],
        ignored_last_line: IgnoredLine | None,
        children: str | None,
    ) -> None:
        super().__init__(name)
        self._root = root
        self._find = find
        self._make_reader = make_reader
        self._describe = describe
        self._send = send
        self._diff = diff
        self._change = change
        self._delete = delete
        self._link = link
        self._clean = clean
        self._ignored_last_line = ignored_last_line
        self._children = children

    @functools.cached_property
    def records(self) -> HostRecords:
        """What the run directories keep of experiments and of their runs."""
        from symphony.supervised.host_records import HostRecords

        return HostRecords(
            self._root, find=self._find, observe=self.observe, children=self._children
        )

    # --- ending ---

    def stop(self, experiment: str, *, at_once: bool) -> None:
        """Let the supervisor stop the processes, or stop them if it was killed."""
        from symphony.supervised.user_requests.stop import stop

        with self._find(experiment).pin() as run:
            if not run.is_locked():
                # The new supervisor of a killed one records that the processes were stopped. It is
                # not necessary, however.
                with contextlib.suppress(BackendError):
                    self._make_reader(run).read()
            stop(run, at_once=at_once)

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment, and move the record of its run to the archive."""
        self._delete(experiment, in_order=in_order, at_once=at_once, purge=purge)

    # --- observing ---

    output_includes_events = True

    def names(self) -> Collection[str]:
        """Return the names of the run directories."""
        return [run.name for run in directory.find_all(self._root)]

    @property
    def location(self) -> str:
        """The directory with the run directories."""
        return str(self._root)

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

    @contextlib.contextmanager
    def watch_statuses(self, experiment: str) -> Iterator[Callable[[], WatchedStatuses]]:
        """Read only new events."""
        reader = self._make_reader(self._find(experiment))

        def read() -> WatchedStatuses:
            nonlocal reader
            run = self._find(experiment)
            try:
                status = reader.read()
            except NotFound:
                # The experiment was launched again.
                reader = self._make_reader(run)
                status = reader.read()
            return WatchedStatuses([status])

        yield read

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

    def external_addresses(self, experiment: str) -> Mapping[str, str | None]:
        """Return the addresses in the manifest."""
        manifest = self._find(experiment).load_manifest()
        return {service: manifest["services"][service] for service in manifest["exposed"]}

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the operating system reports about the processes."""
        run = self._find(experiment)
        other_host = run.other_host()
        if other_host is not None:
            raise Unsupported(run.other_host_message(other_host, "run the command there"))
        return self._sampled_usage(run, names, interval)

    def _sampled_usage(
        self, run: RunDirectory, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        from symphony.supervised.usage.follow import follow_usage
        from symphony.usage import select_usage

        # A run that is deleted is read to its end.
        with run.pin() as pinned:
            for usage in follow_usage(pinned, self._make_reader(pinned), interval):
                yield select_usage(usage, names)

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output in the log files, and the recorded events."""
        from symphony.supervised.read.output import iter_output

        run = self._find(experiment)
        return iter_output(
            run,
            selection,
            status=self._make_reader(run),
            clean=self._clean,
            ignored=self._ignored_last_line,
        )

    def log(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        """Yield what the log file of a process contains."""
        if part.previous:
            return super().log(experiment, process, part)
        return self._log_text(experiment, process, part)

    def _log_text(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        from symphony.supervised.read.log_files import iter_text

        run = self._find(experiment)
        with run.report_damage(run.logs):
            yield from iter_text(
                run, process, since=part.since, tail=part.tail, ignored=self._ignored_last_line
            )

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

    # --- using ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command on this machine. The process can have exited.

        The process's preamble runs again before the command, with its output on standard error.
        Raises NotFound if the process was launched on another host, and SpecError if the command
        cannot be run.
        """
        found = process.find()
        run = self._find(experiment)
        other_host = run.other_host()
        if other_host is not None:
            raise NotFound(
                f"process {found.path!r} was launched on {other_host}: run the command there"
            )
        return exec_on_this_machine(run, found, argv, interactive=interactive)

    def copy(
        self,
        experiment: str,
        source: Place,
        target: Place,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Copy files on this machine. The process can have exited. ``progress`` is never called."""
        from symphony.supervised.access.copy import copy, resolve_path

        del progress
        manifest = self._find(experiment).load_manifest()
        paths = (resolve_path(source, manifest), resolve_path(target, manifest))
        copy(*paths, dry_run=dry_run)

    def forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None,
        *,
        local_port: int | None,
        on_error: Callable[[str], None] | None,
    ) -> Tunnel:
        """Return a tunnel with the address itself, because every port is a port of this machine.

        With another ``local_port``, connections to it are relayed to the address.
        """
        services: dict[str, str] = self._find(experiment).load_manifest()["services"]
        address = services.get(process_or_service)
        if address is None:
            find_by_path(self.observe(experiment), process_or_service)
            if port is None:
                raise SpecError(f"the port of process {process_or_service!r} is missing; set port")
            address = f"127.0.0.1:{port}"
        elif port is not None:
            address = f"{address.rpartition(':')[0]}:{port}"
        host, _, own_port = address.rpartition(":")
        if local_port is None or local_port == int(own_port):
            return Tunnel(address)
        from symphony.supervised.access.relay import Relay

        relay = Relay(local_port, (host, int(own_port)), on_error)
        return Tunnel(relay.address, close=relay.close)


def exec_on_this_machine(
    run: RunDirectory, found: ProcessStatus, argv: Sequence[str], *, interactive: bool
) -> ExecResult:
    """Run a command on this machine, in the environment of the process ``found``."""
    from symphony.supervised.access import exec_command
    from symphony.supervised.processes.spec import ProcessSpec

    manifest = run.load_manifest()
    data = next(data for data in manifest["processes"] if data["name"] == found.name)
    spec = ProcessSpec.from_dict(data)
    with run.report_damage(run.secrets):
        env = exec_command.initial_environment(run, manifest, spec, found.pid)
    if env is None:
        raise NotFound(f"process {found.path!r} belongs to another user")
    try:
        completed = exec_command.run(spec, argv, env, capture_output=not interactive)
    except exec_command.CommandNotRunError as exc:
        raise SpecError(
            f"cannot run the command {argv[0]!r} in the environment of {found.path!r}: {exc}"
        ) from exc
    code = completed.returncode
    return ExecResult(
        exit_code=128 - code if code < 0 else code,
        stdout=completed.stdout or "",
        stderr=completed.stderr or "",
    )


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
