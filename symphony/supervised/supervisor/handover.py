"""Starting a supervisor: the launcher sends orders, and the supervisor carries them out.

The launcher starts the supervisor early, so that the supervisor's imports overlap with the
launcher's checks. The launcher then sends the orders and the file descriptors of the lock, leases
and holds through a socket, and waits for the launch report on a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from symphony.errors import BackendError
from symphony.plan.restart_policy import Backoff
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, identify
from symphony.supervised.processes.mark import remove_own_mark
from symphony.supervised.record import launch_settings
from symphony.supervised.record.directory import RunDirectory, full_disk_errors
from symphony.supervised.record.launch_settings import LaunchSettings
from symphony.supervised.supervisor.guarding import GUARDED, encode_preparation
from symphony.support.import_path import own_import_path

if TYPE_CHECKING:
    from symphony.plan.policies import Ending
    from symphony.plan.state import Event
    from symphony.supervised.supervisor.children import Children
    from symphony.supervised.supervisor.guarding import Guard
    from symphony.supervised.supervisor.supervisor import Supervisor

STARTED, EXISTS, REFUSED, FAILED = "started", "exists", "refused", "failed"

# The maximum number of file descriptors in one message. Linux accepts at most 253.
DESCRIPTORS_PER_MESSAGE = 200
# A message with descriptors must contain at least one byte of data. JSON ignores leading spaces, so
# the orders can directly follow the spaces.
FILLER = b" "
_RECEIVE_BYTES = 65536
# The number of new objects after which Python searches for garbage. The stop of hundreds of
# processes creates thousands of objects at once that are needed for a moment.
_GARBAGE_THRESHOLD = 20_000

SEND_TIMEOUT_SECONDS, SEND_RETRY_SECONDS = 10.0, 0.01


class LaunchReport(NamedTuple):
    """The result of a launch.

    ``outcome`` is ``started``, ``exists`` if another launch has already claimed the name,
    ``refused`` if a process could not be started for the reason in ``reason``, or ``failed`` if the
    supervisor failed. In the last case, ``reason`` is a complete error message. ``warning`` is a
    message about a launch that has succeeded.
    """

    outcome: str
    reason: str = ""
    warning: str = ""


# --- the launcher's side ---


@contextlib.contextmanager
def prepared_supervisor(
    run: RunDirectory,
    name: str,
    *,
    children: str,
    settings: LaunchSettings,
    replaces: bool = False,
) -> Iterator[socket.socket]:
    """Start a detached supervisor for a staging directory, and yield the channel for its orders.

    ``settings`` are the settings of the launch. The supervisor records them with those that it has
    inherited. If ``replaces`` is
    true, the supervisor of ``run`` was killed, and the new one receives the recorded settings.

    ``children`` names the class that starts processes, in the form ``"module:Class"``. The
    supervisor immediately imports all modules that it needs, including the module of this class.
    Until the supervisor receives its orders, it holds no lock and no lease. If the ``with`` block
    raises an exception, the supervisor is stopped and the exception is raised again. If it had not
    completed the launch, the lock and all leases are free by then.
    """
    channel, supervisor_end = socket.socketpair()
    exit_read, exit_write = os.pipe()
    with channel, os.fdopen(exit_read, "rb") as exit_pipe:
        with supervisor_end, os.fdopen(exit_write, "wb"):
            environment = settings.environment if replaces else os.environ
            parent = _spawn_supervisor(run, name, supervisor_end, exit_write, environment)
        try:
            preparation = {
                "path": own_import_path(),
                "children": children,
                "settings": settings.to_dict(),
                "replaces": replaces,
            }
            # If the supervisor has already died, `hand_over` reports the error.
            with contextlib.suppress(ConnectionError):
                channel.sendall(encode_preparation(run.path, preparation))
            yield channel
        except BaseException:
            # The supervisor is a grandchild of this process, but it is still in the process group
            # of `parent`.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGTERM)
            # The kernel closes the files of a process in no useful order, so that end-of-file on
            # the report pipe does not mean that the leases are free.
            exit_pipe.read()
            raise
        finally:
            parent.wait()


def hand_over(
    channel: socket.socket,
    run: RunDirectory,
    final: Path,
    *,
    lock: int,
    keep: Sequence[int] = (),
    holds: Mapping[int, int] | None = None,
    gpus: Mapping[str, list[int]] | None = None,
    on_inherited: Callable[[], None] = lambda: None,
    while_launching: Callable[[], None] = lambda: None,
) -> LaunchReport:
    """Send a prepared supervisor its orders, and return its launch report.

    The supervisor receives ``lock``, the descriptor of the run directory's lock, and three sets of
    file descriptors. It keeps the descriptors in ``keep``, such as the port leases, until it exits
    or the launch has failed. ``holds`` maps ports to descriptors, each of which is kept until the
    supervisor starts the process that serves the port. ``gpus`` maps process names to descriptors,
    which are kept until the process has exited for the last time.

    ``final`` is the final path of the run directory. ``on_inherited`` is called after the
    descriptors have been sent and before the supervisor starts its work. ``while_launching`` is
    called while the supervisor works.

    After sending the report, the supervisor no longer depends on the launcher. If this call is
    interrupted by an exception, such as KeyboardInterrupt, the exception is raised again only after
    the launch is over. The caller can then roll back the launch. Raises BackendError if the
    supervisor dies without sending a report.
    """
    report_read, report_write = os.pipe()
    holds, gpus = holds or {}, gpus or {}
    gpu_descriptors = [descriptor for leases in gpus.values() for descriptor in leases]
    orders = {
        "directory": str(run.path),
        "final": str(final),
        "report": report_write,
        "descriptors": [lock, *keep, *holds.values(), *gpu_descriptors, report_write],
        "keep": list(keep),
        "holds": dict(holds),
        "gpus": dict(gpus),
    }
    with os.fdopen(report_read, "rb") as report_pipe:
        content = _exchange(
            channel, orders, report_write, report_pipe, on_inherited, while_launching
        )
    if not content:
        message = _last_message(run, final)
        raise BackendError(f"the supervisor of {final.name!r} died while launching: {message}")
    return LaunchReport(**json.loads(content))


def _exchange(
    channel: socket.socket,
    orders: Mapping[str, Any],
    report_write: int,
    report_pipe: BinaryIO,
    on_inherited: Callable[[], None],
    while_launching: Callable[[], None],
) -> bytes:
    """Send the orders, and return the report's contents.

    The contents are empty if the supervisor has died.
    """
    try:
        try:
            _send_orders(channel, orders, on_inherited)
        finally:
            # The launcher reads end-of-file from the pipe only when no process has the pipe open
            # for writing.
            os.close(report_write)
        while_launching()
        return report_pipe.read()
    except BaseException:
        # The caller was interrupted. With incomplete orders, the supervisor exits; with complete
        # orders, it launches the experiment. In both cases, wait until the result is final before
        # raising the exception again.
        with contextlib.suppress(OSError):
            channel.shutdown(socket.SHUT_WR)
        report_pipe.read()
        raise


def _spawn_supervisor(
    run: RunDirectory,
    name: str,
    stdin: socket.socket,
    exit_pipe: int,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start the supervisor program, which forks once. Its original process then exits.

    The program closes ``exit_pipe`` when the launch is complete, or when its supervisor has exited.
    """
    program = Path(__file__).with_name("__main__.py")
    # A run identifier in a process's environment marks the process as part of that run. If a
    # process of a run launches another experiment, the new supervisor must not have this
    # identifier.
    env = {key: value for key, value in environment.items() if key != RUN_ID_VARIABLE}
    with run.supervisor_log.open("ab") as log:
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), name],
                stdin=stdin.fileno(),
                stdout=exit_pipe,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=env,
            )
        except OSError as exc:
            raise BackendError(
                f"cannot start a supervisor with {sys.executable!r}: {exc.strerror}"
            ) from exc


def _send_orders(
    channel: socket.socket, orders: Mapping[str, Any], on_inherited: Callable[[], None]
) -> None:
    descriptors = orders["descriptors"]
    # If the supervisor has died, the missing report reveals the failure.
    with contextlib.suppress(ConnectionError):
        for start in range(0, len(descriptors), DESCRIPTORS_PER_MESSAGE):
            send_descriptors(channel, descriptors[start : start + DESCRIPTORS_PER_MESSAGE])
        # The supervisor starts its work only when it has read all of the orders.
        on_inherited()
        channel.sendall(json.dumps(orders).encode())
        channel.shutdown(socket.SHUT_WR)


def send_descriptors(channel: socket.socket, descriptors: Sequence[int]) -> None:
    """Send descriptors. Wait if too many descriptors from this user are still in transit.

    The kernel limits the number of sent descriptors that have not been received yet. Raises
    BackendError if the limit is still exceeded after `SEND_TIMEOUT_SECONDS`.
    """
    deadline = time.monotonic() + SEND_TIMEOUT_SECONDS
    while True:
        try:
            socket.send_fds(channel, [FILLER], descriptors)
            return
        except OSError as exc:
            if exc.errno != errno.ETOOMANYREFS:
                raise
            if time.monotonic() >= deadline:
                raise BackendError(
                    "too many launches hand over their ports at the same moment; launch again"
                ) from exc
        time.sleep(SEND_RETRY_SECONDS)


def _last_message(run: RunDirectory, final: Path) -> str:
    """Return the last line of the supervisor's log, or a placeholder if the log contains no text.

    The log is in ``run`` or, if the supervisor has already renamed the run directory, in ``final``.
    """
    for directory in (run, RunDirectory(final)):
        with contextlib.suppress(OSError):
            text = directory.supervisor_log.read_text(errors="replace")
            lines = text.strip().splitlines()
            if lines:
                return lines[-1]
    return "it left no message"


# --- the supervisor's side ---


def run_supervisor(preparation: Mapping[str, Any], guard: Guard) -> None:
    """Import modules, receive orders on standard input, and launch and supervise the experiment."""
    remove_own_mark()
    with socket.socket(fileno=os.dup(0)) as channel:
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        os.close(devnull)
        settings = LaunchSettings(**preparation["settings"])
        recorded = b""
        try:
            if preparation["replaces"]:
                settings.apply()
            else:
                recorded = settings.with_inherited().encode()
            _import_modules(preparation["children"])
            orders = _receive_orders(channel)
        except BaseException:
            # A third-party module can raise any exception while it is imported.
            _log_exception()
            return
    if orders is None:
        return
    if preparation["replaces"]:
        run, reports = RunDirectory(Path(orders["directory"])), [orders["report"]]

        def report(outcome: LaunchReport) -> None:
            if reports:
                _send_report(reports.pop(), outcome)

        _resume(run, settings, preparation["children"], guard, report)
    else:
        _launch(orders, settings, recorded, preparation["children"], guard)


def continue_run(preparation: Mapping[str, Any], guard: Guard) -> None:
    """Continue the run of a supervisor that was killed, in a program that its guardian has forked.

    If there is nothing to continue, because another program has started a new supervisor or has
    deleted the experiment, tell the guardian so. After an error, the guardian tries again.
    """
    from symphony.supervised.record.unsupervised_run import lock_unsupervised, read_settings

    remove_own_mark()
    _wait_for_guarded(preparation)
    run = RunDirectory(guard.path)
    with lock_unsupervised(run) as lock:
        if lock is None:
            if run.recorded_supervisor() is not None or not run.is_current():
                guard.leave()
            return
        try:
            settings = read_settings(run)
        except BackendError as exc:
            sys.stderr.write(f"no new supervisor could be started: {exc}\n")
            settings = None
        if settings is None:
            guard.leave()
            return
        settings.apply()
        _import_modules(preparation["children"])
        _resume(run, settings, preparation["children"], guard, lambda _: None)


def _wait_for_guarded(preparation: Mapping[str, Any]) -> None:
    """Wait until the killed supervisor has exited that had started the guardian.

    The guardian is not its parent and only notices that a pipe is closed. The kernel can close the
    lock later, so that the killed supervisor would be taken for another new one.
    """
    guarded = preparation.get(GUARDED)
    if guarded is None:
        return
    from symphony.supervised.processes.process_groups import wait_for_exit

    wait_for_exit(ProcessId(*guarded), math.inf)


def _import_modules(children: str) -> None:
    """Import everything that the supervisor needs to start processes, while the launcher is still
    preparing the launch.
    """
    importlib.import_module("symphony.supervised.supervisor.supervisor")
    _load_children_class(children)


def _load_children_class(children: str) -> Callable[..., Children]:
    """Return the class that ``children`` names in the form ``"module:Class"``."""
    module, _, attribute = children.partition(":")
    found: Callable[..., Children] = getattr(importlib.import_module(module), attribute)
    return found


def _receive_orders(channel: socket.socket) -> dict[str, Any] | None:
    """Return the orders, with the file descriptor numbers that are valid in this process.

    Return None if the orders are incomplete because the launcher has aborted the launch.
    """
    content, descriptors = b"", []
    while True:
        data, received, _, _ = socket.recv_fds(channel, _RECEIVE_BYTES, DESCRIPTORS_PER_MESSAGE)
        if not data:
            break
        content += data
        descriptors += received
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    try:
        orders: dict[str, Any] = json.loads(content)
    except ValueError:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    received_as = dict(zip(orders["descriptors"], descriptors, strict=True))
    orders["report"] = received_as[orders["report"]]
    orders["keep"] = [received_as[descriptor] for descriptor in orders["keep"]]
    orders["holds"] = {
        int(port): received_as[descriptor] for port, descriptor in orders["holds"].items()
    }
    for name, leases in orders["gpus"].items():
        orders["gpus"][name] = [received_as[descriptor] for descriptor in leases]
    return orders


def _log_exception() -> None:
    """Write the current exception to the supervisor's log.

    Call this function before closing the report pipe, because the launcher reads the log when the
    pipe is closed.
    """
    # If no more files can be opened, the module `traceback` cannot be imported. This function is
    # always available.
    with contextlib.suppress(OSError):
        sys.__excepthook__(*sys.exc_info())


def _launch(
    orders: Mapping[str, Any],
    settings: LaunchSettings,
    recorded: bytes,
    children: str,
    guard: Guard,
) -> None:
    """Launch and supervise the experiment. ``recorded`` are the encoded settings.

    A failure before the launch report is rolled back and reported to the launcher. The report does
    not need the supervisor's log, which cannot be written if the disk is full.
    """
    from symphony.supervised.supervisor.supervisor import KILL_SIGNAL, STOP_SIGNAL

    run = RunDirectory(Path(orders["directory"]))
    final = Path(orders["final"])
    supervisor: Supervisor | None = None
    # As soon as the directory has its final name, another program can find the supervisor and stop
    # it. The signals stay pending until the supervisor can handle them.
    signal.pthread_sigmask(signal.SIG_BLOCK, (STOP_SIGNAL, KILL_SIGNAL))
    try:
        manifest = run.load_manifest(is_new=True)
        with full_disk_errors(final, len(manifest["processes"])):
            own = identify(os.getpid()) or ProcessId(os.getpid(), 0.0)
            run.record_supervisor(own)
            launch_settings.record(run, recorded)
            run = run.claim(final)
            supervisor = _create_supervisor(
                run,
                manifest,
                settings,
                children,
                holds=orders["holds"],
                gpus=orders["gpus"],
                since=own.birth,
            )
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (STOP_SIGNAL, KILL_SIGNAL))
            supervisor.launch()
    except Exception as exc:
        report = _failure_report(exc, final)
        if report.outcome == FAILED:
            _log_exception()
        if supervisor is not None:
            supervisor.roll_back()
        _release_resources(orders)
        run.remove()
        _send_report(orders["report"], report)
        return
    guard.announce(run.path)
    report = LaunchReport(outcome=STARTED, warning=supervisor.missing_support)
    _send_report(orders["report"], report)
    _supervise(supervisor, guard)


def _supervise(supervisor: Supervisor, guard: Guard) -> None:
    """Supervise the processes until all of them have exited."""
    supervisor.prepare_stop()
    supervisor.watch_guardian(guard)
    # The objects that exist now are needed until the supervisor exits.
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    gc.enable()
    # On a full disk, Python can write a part of a compiled module, which no program can import.
    sys.dont_write_bytecode = True
    supervisor.run()
    guard.end()


def _resume(
    run: RunDirectory,
    settings: LaunchSettings,
    children: str,
    guard: Guard,
    report: Callable[[LaunchReport], None],
) -> None:
    """Continue the run of a supervisor that was killed.

    ``report`` is called, perhaps twice, when the processes have been taken over, or if this has
    failed. In that case, the processes of the run are not changed, and another program can try
    again.
    """
    from symphony.supervised.record import change_directory
    from symphony.supervised.record.event_file import EventReader
    from symphony.supervised.record.interruption import after_reboot
    from symphony.supervised.supervisor.regained import regain_ports
    from symphony.supervised.supervisor.supervisor import KILL_SIGNAL, STOP_SIGNAL

    signal.pthread_sigmask(signal.SIG_BLOCK, (STOP_SIGNAL, KILL_SIGNAL))
    own = identify(os.getpid()) or ProcessId(os.getpid(), 0.0)
    is_rebooted = not run.is_of_this_boot()

    def report_success() -> None:
        run.record_supervisor(own, replaces=True)
        guard.announce(run.path)
        report(LaunchReport(outcome=STARTED))

    try:
        manifest = run.load_manifest()
        with full_disk_errors(run.path, len(manifest["processes"])):
            change_directory.finish(run, manifest)
            events = EventReader(run.events).read_new()
            ports = regain_ports(manifest, events, hold_until_bound=settings.hold_until_bound)
            # Until the leases are regained, launches examine the processes of the run.
            run.record_supervisor(own, replaces=True, is_resuming=True)
            supervisor = _create_supervisor(
                run,
                manifest,
                settings,
                children,
                holds=ports.holds,
                events=events,
                lost_ports=ports.lost,
            )
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (STOP_SIGNAL, KILL_SIGNAL))
            if is_rebooted:
                supervisor.continue_after_eviction(after_reboot())
                report_success()
            else:
                supervisor.resume(report_success)
    except Exception as exc:
        _log_exception()
        reason = str(exc) if isinstance(exc, BackendError) else f"{type(exc).__name__}: {exc}"
        report(LaunchReport(outcome=FAILED, reason=reason))
        return
    _supervise(supervisor, guard)
    # The experiment may have finished before the event loop has called the function.
    report(LaunchReport(outcome=STARTED))


def _release_resources(orders: Mapping[str, Any]) -> None:
    """Release the ports and GPUs of a failed launch.

    When the name is free, another launch can use them at once.
    """
    # The supervisor has removed the descriptors that it has closed from `holds` and `gpus`.
    for descriptors in (orders["keep"], orders["holds"].values(), *orders["gpus"].values()):
        for descriptor in descriptors:
            os.close(descriptor)


def _failure_report(exc: Exception, final: Path) -> LaunchReport:
    """Return the launch report for an exception that was raised before the launch was complete."""
    from symphony.supervised.supervisor.execution.starter import LaunchRefused

    if isinstance(exc, FileExistsError) and exc.filename == str(final):
        return LaunchReport(outcome=EXISTS)
    if isinstance(exc, LaunchRefused):
        return LaunchReport(outcome=REFUSED, reason=str(exc))
    if isinstance(exc, BackendError):
        return LaunchReport(outcome=FAILED, reason=str(exc))
    message = f"{type(exc).__name__}: {exc}"
    return LaunchReport(
        outcome=FAILED, reason=f"the supervisor of {final.name!r} failed while launching: {message}"
    )


def _create_supervisor(
    run: RunDirectory,
    manifest: Mapping[str, Any],
    settings: LaunchSettings,
    children: str,
    *,
    events: Sequence[Event] | None = None,
    **options: Any,
) -> Supervisor:
    """Return the supervisor of a run.

    ``events`` are the recorded events if the supervisor of the run was killed, and None for a new
    run. ``options`` are further keyword arguments of `Supervisor`.
    """
    from symphony.plan.policies import Policies
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.event_file import previous_processes
    from symphony.supervised.supervisor.supervisor import Supervisor

    specs = [ProcessSpec.from_dict(data) for data in manifest["processes"]]
    old_specs = [ProcessSpec.from_dict(data) for data in previous_processes(manifest)]
    return Supervisor(
        run,
        manifest["run_id"],
        {spec.name: spec.with_secrets(run.secrets) for spec in specs},
        {**os.environ, **manifest["env"]},
        functools.partial(_load_children_class(children), **settings.children_options),
        backoff=Backoff(**settings.backoff),
        policies=Policies.from_dict(manifest.get("policies", {})),
        events=events or (),
        change=manifest.get("change"),
        old_specs={spec.name: spec for spec in old_specs},
        eviction=functools.partial(_interruption, run),
        **options,
    )


def _interruption(run: RunDirectory) -> Ending | None:
    """Return why the system stops an experiment that it starts again later, or None."""
    # Only an experiment that receives SIGTERM needs the module.
    from symphony.supervised.record.interruption import interruption

    return interruption(run)


def _send_report(descriptor: int, report: LaunchReport) -> None:
    # If the launcher was killed, no process reads the report.
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, json.dumps(report._asdict()).encode())
    os.close(descriptor)
