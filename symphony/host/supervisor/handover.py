"""Both ends of starting a supervisor: what the launcher orders, and how the supervisor obeys and reports."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.host.processes.identity import ProcessId, identify
from symphony.host.processes.spec import MARK
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.restart_policy import Backoff

if TYPE_CHECKING:
    from symphony.host.processes.children import Children

STARTED, EXISTS, REFUSED = "started", "exists", "refused"
AT_ONCE = 200  # descriptors in one message; Linux takes 253
FILLER = b" "  # the text of such a message; JSON, which follows, may begin with it
PATIENCE, LOOK_AGAIN = 10.0, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a launch went: ``started``, ``exists`` (the name was taken) or ``refused`` with the reason."""

    word: str
    reason: str = ""


@contextlib.contextmanager
def preparing(run: RunDirectory, name: str, *, children: str) -> Iterator[socket.socket]:
    """Start a detached supervisor, for a directory that has no name yet: the channel on which it awaits its orders.

    It imports what it needs, with the ``children`` of "module:Class" that start processes, while its launcher still
    decides. Until it has orders it holds nothing but its log, and an exception, which is passed on, ends it.
    """
    channel, theirs = socket.socketpair()
    with channel:
        with theirs:
            family = _spawn(run, name, theirs)
        try:
            with contextlib.suppress(
                ConnectionError
            ):  # it died, which shows when it is given its orders
                channel.sendall(
                    json.dumps({"path": sys.path, "children": children}).encode() + b"\n"
                )
            yield channel
        except BaseException:
            with contextlib.suppress(
                ProcessLookupError
            ):  # it leads no session: its group is that of its parent
                os.killpg(family.pid, signal.SIGTERM)
            raise
        finally:
            family.wait()


def start(
    channel: socket.socket,
    run: RunDirectory,
    final: Path,
    *,
    keep: Sequence[int],
    holds: Mapping[int, int],
    gpus: Mapping[str, list[int]],
    children_options: Mapping[str, Any],
    backoff: Backoff,
    inherited: Callable[[], None],
) -> Report:
    """Give a supervisor that is `preparing` its orders, and wait for its report.

    It gets descriptors: ``keep`` as long as it lives (the lock, leases), ``holds`` by port until the server of that
    port starts, ``gpus`` by process until that has ended. What starts processes gets the keywords
    ``children_options``. ``inherited`` is called when the descriptors are on their way and it has not begun.

    Once it reported, whatever happens here no longer matters to it. An interruption while waiting is passed on
    when the launch is through, so that its caller can take it back.
    """
    read_end, write_end = os.pipe()
    orders = {
        "directory": str(run.path),
        "final": str(final),
        "report": write_end,
        # The last is let go last: when nobody can report any more, nobody holds the others.
        "descriptors": [
            *keep,
            *holds.values(),
            *(fd for fds in gpus.values() for fd in fds),
            write_end,
        ],
        "holds": dict(holds),
        "gpus": dict(gpus),
        "children_options": dict(children_options),
        "backoff": asdict(backoff),
    }
    with os.fdopen(read_end, "rb") as report:
        try:
            try:
                _order(channel, orders, inherited)
            finally:
                os.close(write_end)
            said = report.read()
        except BaseException:  # interrupted: the caller takes back what now comes to be
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_WR)
            report.read()
            raise
    if not said:
        raise BackendError(
            f"the supervisor of {final.name!r} died while launching: {_last_words(run, final)}"
        )
    return Report(**json.loads(said))


def _spawn(run: RunDirectory, name: str, stdin: socket.socket) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("__main__.py")
    try:
        with run.supervisor_log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), name],
                stdin=stdin.fileno(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={key: value for key, value in os.environ.items() if key != MARK},
            )
    except OSError as exc:
        raise BackendError(
            f"cannot start a supervisor with {sys.executable!r}: {exc.strerror}"
        ) from exc


def _order(
    channel: socket.socket, orders: Mapping[str, Any], inherited: Callable[[], None]
) -> None:
    descriptors = orders["descriptors"]
    with contextlib.suppress(ConnectionError):  # it died: there will be no report
        for begin in range(0, len(descriptors), AT_ONCE):
            _send(channel, descriptors[begin : begin + AT_ONCE])
        inherited()  # it begins when it has read its orders to their end
        channel.sendall(json.dumps(orders).encode())
        channel.shutdown(socket.SHUT_WR)


def _send(channel: socket.socket, descriptors: Sequence[int]) -> None:
    """Send descriptors, once those of this user that nobody has received yet leave room: the kernel limits them."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.send_fds(channel, [FILLER], descriptors)
            return
        except OSError as exc:
            if exc.errno != errno.ETOOMANYREFS:
                raise
            if time.monotonic() >= deadline:
                raise BackendError(
                    "too many launches at the same moment hand over their ports; launch again"
                ) from exc
        time.sleep(LOOK_AGAIN)


def _last_words(run: RunDirectory, final: Path) -> str:
    for place in (run, RunDirectory(final)):
        with contextlib.suppress(OSError):
            lines = place.supervisor_log.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
    return "it left no message"


# --- the other end ---


def obey(preparation: Mapping[str, Any]) -> None:
    """Be the supervisor: prepare, await orders on standard input, launch, report, and supervise to the end."""
    with socket.socket(fileno=os.dup(0)) as channel:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        try:
            _prepare(preparation["children"])
            orders = _received(channel)
        except BaseException:  # what is imported may raise anything
            _tell_trouble()
            return
    if orders is not None:
        _launch(orders, preparation["children"])


def _prepare(children: str) -> None:
    """Import all that supervising takes, while the launcher is busy."""
    import symphony.host.supervisor.supervisor

    _class(children)


def _class(children: str) -> Callable[..., Children]:
    """What starts processes, of its ``"module:Class"``."""
    module, _, attribute = children.partition(":")
    found: Callable[..., Children] = getattr(importlib.import_module(module), attribute)
    return found


def _received(channel: socket.socket) -> dict[str, Any] | None:
    """The orders with the descriptors as they are numbered here, or None from a launcher that gave it up."""
    said, here = b"", []
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 65536, AT_ONCE)
        if not data:
            break
        said += data
        here += descriptors
    for descriptor in here:
        os.set_inheritable(descriptor, False)
    try:
        orders: dict[str, Any] = json.loads(said)
    except ValueError:  # it ends in the middle
        for descriptor in here:
            os.close(descriptor)
        return None
    number = dict(zip(orders["descriptors"], here, strict=True))
    orders["report"] = number[orders["report"]]
    orders["holds"] = {
        int(port): number[descriptor] for port, descriptor in orders["holds"].items()
    }
    orders["gpus"] = {
        name: [number[descriptor] for descriptor in fds] for name, fds in orders["gpus"].items()
    }
    return orders


def _tell_trouble() -> None:
    """Write the exception that is handled to the supervisor's log, before the launcher can hear of it and look."""
    import traceback

    traceback.print_exc()


def _launch(orders: Mapping[str, Any], children: str) -> None:
    aside = RunDirectory(Path(orders["directory"]))
    aside.sign(identify(os.getpid()) or ProcessId(os.getpid(), 0.0))
    try:
        run = aside.claim(Path(orders["final"]))
    except FileExistsError:
        aside.remove()
        _report(orders["report"], Report(word=EXISTS))
        return
    try:
        _supervise(run, orders, children)
    except Exception:
        _tell_trouble()
        raise


def _supervise(run: RunDirectory, orders: Mapping[str, Any], children: str) -> None:
    from symphony.host.processes.spec import Command
    from symphony.host.supervisor.supervisor import LaunchRefused, Supervisor

    manifest = run.load_manifest()
    supervisor = Supervisor(
        run,
        manifest["run_id"],
        {
            data["name"]: Command.from_dict(data).with_secrets(run.secrets)
            for data in manifest["processes"]
        },
        {**os.environ, **manifest["env"]},
        functools.partial(_class(children), **orders["children_options"]),
        holds=orders["holds"],
        gpus=orders["gpus"],
        backoff=Backoff(**orders["backoff"]),
    )
    try:
        supervisor.launch()
    except LaunchRefused as exc:
        supervisor.take_back()
        run.remove()
        _report(orders["report"], Report(word=REFUSED, reason=str(exc)))
        return
    _report(orders["report"], Report(word=STARTED))
    supervisor.run()


def _report(descriptor: int, report: Report) -> None:
    with contextlib.suppress(BrokenPipeError):  # the launcher was killed: nobody to report to
        os.write(descriptor, json.dumps(asdict(report)).encode())
    os.close(descriptor)
