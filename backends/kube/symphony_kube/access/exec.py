"""Running commands in the container of a process: captured, on the terminal, or with streams passed through."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.cluster import ExecResult
from symphony.errors import BackendError, NotFound, SpecError, Unreachable, Unsupported
from symphony_kube.access import exec_stream
from symphony_kube.access.exec_stream import Channels, End
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.status import find_pod
from symphony_kube.status.permission_errors import missing_right
from symphony_kube.status.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony.model.validators import Strings
    from symphony_kube.api.client import Api

# bash where the image has one, else sh.
SHELL = ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"]

# How to give standard input an end on servers before 1.30, whose protocol has none: by its length where that is
# known, else piece by piece as lines of base64, until an empty one. What a command leaves of its input is read after
# it, since how it ended is told only then; of a pipe, which may have no end, no more is sent once it has ended.
_BY_LENGTH = 'n=$1; shift; head -c "$n" | { "$@"; code=$?; cat >/dev/null; exit $code; }'
_BY_LINES = """\
over=$1; shift
while read -r x && [ -n "$x" ] && printf %s "$x" | base64 -d; do :; done | {
"$@"; code=$?; printf %s "$over" >&2; cat >/dev/null; exit $code; }
"""
_LINE = 12 << 10

_ABSENT = ("executable file not found", "no such file or directory", "not found in $PATH")
_CANNOT_RUN = ("permission denied", "exec format error", "is a directory")
_READ = 1 << 16


def command(
    api: Api,
    scope: Scope,
    process: str,
    command: Strings,
    process_group: str | None = None,
    *,
    interactive: bool = False,
) -> ExecResult:
    """Run a command beside a process; see `symphony.cluster.Cluster.exec_command`.

    ``interactive`` gives it this terminal, or this program's streams where standard input and output are not one
    terminal. Raises `NotFound` where the process does not run or its image has no such program.
    """
    from symphony.model.validators import strings

    argv = strings(command, "command")
    place = find_pod.running_container(api, scope, process, process_group)
    if not interactive:
        return _captured(api, scope, place, argv)
    if _is_terminal(0) and _is_terminal(1):
        code = _on_terminal(api, scope, place, argv)
    else:
        code = _passed_through(api, scope, place, argv)
    return ExecResult(exit_code=code)


def login(api: Api, scope: Scope, process: str, process_group: str | None = None) -> None:
    """A shell beside a process, on this terminal, until it ends. Raises `Unsupported` where there is no terminal."""
    if not (_is_terminal(0) and _is_terminal(1)):
        raise Unsupported(
            f"only a terminal can be attached; elsewhere run a command: symphony exec {scope.experiment} {process} -- "
            "CMD..."
        )
    place = find_pod.running_container(api, scope, process, process_group)
    _on_terminal(api, scope, place, SHELL)


# --- the streams of one command ---


def connect(
    api: Api,
    scope: Scope,
    place: ContainerRef,
    argv: Sequence[str],
    *,
    stdin: bool = False,
    tty: bool = False,
) -> Channels:
    """Start a command in a container; its streams. Raises `BackendError` where the server refuses."""
    query = [("container", place.process), *(("command", word) for word in argv)]
    wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query += [(name, "true" if value else "false") for name, value in wanted.items()]
    try:
        return Channels(api.websocket(find_pod.pod_path(scope, place.pod, "exec"), query=query))
    except ApiError as exc:
        doing = f"run a command beside {place.process!r}"
        raise missing_right(exc, doing, "get and create pods/exec", scope) from exc


def exit_code(end: End | None, place: ContainerRef, argv: Sequence[str]) -> int:
    """The exit code of a command; raises the error for one that did not run, or whose end nobody saw."""
    if end is None:
        raise Unreachable(
            f"the connection to {place.process!r} ended before {argv[0]!r} did; it may still run there, or its "
            "container has ended"
        )
    if end.exit_code is not None:
        return end.exit_code
    said = end.reason
    if any(word in said.lower() for word in _ABSENT):
        raise NotFound(
            f"cannot run {argv[0]!r} beside {place.process!r}: its image has no such program"
        )
    if any(word in said.lower() for word in _CANNOT_RUN):
        raise SpecError(f"cannot run {argv[0]!r} beside {place.process!r}: {_last_words(said)}")
    raise BackendError(f"cannot run {argv[0]!r} beside {place.process!r}: {said}")


def _last_words(said: str) -> str:
    return said.removesuffix(": unknown").rpartition(": ")[2] or said


def _captured(api: Api, scope: Scope, place: ContainerRef, argv: Sequence[str]) -> ExecResult:
    kept: dict[int, list[bytes]] = {}
    with connect(api, scope, place, argv) as channels:
        while not channels.closed and exec_stream.STATUS not in kept:
            for channel, data in channels.wait(None)[0]:
                kept.setdefault(channel, []).append(data)
    said = {channel: b"".join(pieces) for channel, pieces in kept.items()}
    code = exit_code(how_ended(said.get(exec_stream.STATUS)), place, argv)
    out, err = (
        said.get(channel, b"").decode(errors="replace")
        for channel in (exec_stream.STDOUT, exec_stream.STDERR)
    )
    return ExecResult(exit_code=code, stdout=out, stderr=err)


def how_ended(status: bytes | None) -> End | None:
    """What the channel of the status said, or None where it said nothing."""
    return None if status is None else exec_stream.end_of(status)


# --- on the terminal ---


def _on_terminal(api: Api, scope: Scope, place: ContainerRef, argv: Sequence[str]) -> int:
    """Give a command this terminal; its keys, Ctrl-C among them, go there as they are."""
    with connect(api, scope, place, argv, stdin=True, tty=True) as channels:
        with _raw(0), _resizes() as resized:
            _tell_size(channels)
            end = _talk(channels, 0, resized, lambda: _tell_size(channels))
    return exit_code(end, place, argv)


def _talk(channels: Channels, keys: int, resized: int, tell_size: Callable[[], None]) -> End | None:
    reading = True
    while not channels.closed:
        watched = [resized, *([keys] if reading and not channels.full else [])]
        messages, ready = channels.wait(None, watched)
        for channel, data in messages:
            if channel == exec_stream.STATUS:
                return exec_stream.end_of(data)
            _write(1, data)
        if resized in ready:
            os.read(resized, _READ)
            tell_size()
        if keys in ready:
            typed = _read(keys)
            reading = bool(typed)
            channels.send(exec_stream.STDIN, typed or b"\x04")
    return None


def _tell_size(channels: Channels) -> None:
    size = os.get_terminal_size(1)
    if size.columns and size.lines:
        channels.send(
            exec_stream.RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}).encode()
        )


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Have the terminal hand over each key as it is, and make it as it was afterwards."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # what was typed ahead is for the command
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizes() -> Iterator[int]:
    """A descriptor that can be read when the terminal has changed its size."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def note(*_: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(tell, b".")

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGWINCH, note) if main else None
    try:
        yield told
    finally:
        if main:
            signal.signal(signal.SIGWINCH, before)
        os.close(told)
        os.close(tell)


# --- with this program's streams ---


@dataclass(slots=True)
class _Input:
    """Standard input: what was read of it already, and how long it is where that is known."""

    first: bytes = b""
    length: int | None = None


def _passed_through(api: Api, scope: Scope, place: ContainerRef, argv: Sequence[str]) -> int:
    """Run a command with this program's streams. One whose output goes elsewhere gets no keys of a terminal."""
    if sys.stdout is not None:
        sys.stdout.flush()
    given = _input()
    if given is None:
        with connect(api, scope, place, argv) as channels:
            end = _feed(channels, None, None)
        return exit_code(end, place, argv)
    over = f"[symphony {secrets.token_hex(16)}]"
    asked, encode = _how_to_feed(api, scope, place, given, over)
    with connect(api, scope, place, [*asked, *argv], stdin=True) as channels:
        end = _feed(channels, given, encode, over.encode())
    try:
        return exit_code(end, place, argv)
    except NotFound as exc:
        if asked:
            raise NotFound(
                f"{exc}; this server gives standard input an end only with the help of a shell (sh)"
            ) from exc
        raise


def _how_to_feed(
    api: Api, scope: Scope, place: ContainerRef, given: _Input, over: str
) -> tuple[list[str], Callable[[bytes], bytes] | None]:
    """What to put before a command so that its input comes to an end, and how to write the input then.

    ``over`` is the word on standard error that the command has ended and needs no more input.
    """
    with connect(
        api, scope, place, ["true"]
    ) as channels:  # tells the protocol; whether there is a "true" is no matter
        if channels.can_end:
            return [], None
    if given.length is not None:
        return ["sh", "-c", _BY_LENGTH, "sh", str(given.length)], bytes
    return ["sh", "-c", _BY_LINES, "sh", over], _lines


def _lines(data: bytes) -> bytes:
    """Data as lines of base64; no data as the empty line that ends them."""
    pieces = (data[start : start + _LINE] for start in range(0, max(1, len(data)), _LINE))
    return b"".join(base64.b64encode(piece) + b"\n" for piece in pieces)


def _input() -> _Input | None:
    """Standard input, or None where there is none to speak of: closed, a terminal, a device, already at its end."""
    try:
        kind = os.fstat(0)
    except OSError:
        return None
    if stat.S_ISREG(kind.st_mode):
        left = kind.st_size - os.lseek(0, 0, os.SEEK_CUR)
        return _Input(length=left) if left > 0 else None
    if not (stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode)):
        return None
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if not poll.poll(0):
        return _Input()
    first = _read(0)
    return _Input(first=first) if first else None


class _Word:
    """Takes a word out of a stream, as soon as that has said it."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._held = b""
        self.said = False

    def rest(self, data: bytes) -> bytes:
        """What may be passed on now that ``data`` came: all but what may be the beginning of the word."""
        if self.said or not self._word:
            return data
        data = self._held + data
        before, found, after = data.partition(self._word)
        if found:
            self.said, self._held = True, b""
            return before + after
        most = min(len(data), len(self._word) - 1)
        held = next((size for size in range(most, 0, -1) if self._word.startswith(data[-size:])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def last(self) -> bytes:
        """What was kept back, at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _feed(
    channels: Channels,
    given: _Input | None,
    encode: Callable[[bytes], bytes] | None,
    over: bytes = b"",
) -> End | None:
    """Pass output and input until the command ends; how it ended.

    No more input is read once standard error has said ``over``, which is not passed on.
    """
    word = _Word(over)
    try:
        return _exchange(channels, given, encode, word)
    finally:
        _write(exec_stream.STDERR, word.last())


def _exchange(
    channels: Channels, given: _Input | None, encode: Callable[[bytes], bytes] | None, over: _Word
) -> End | None:
    def pass_on(data: bytes) -> None:
        if data or encode is not None:
            channels.send(exec_stream.STDIN, encode(data) if encode is not None else data)
        else:
            channels.end(exec_stream.STDIN)

    if given is not None and given.first:
        pass_on(given.first)
    reading = given is not None
    while not channels.closed:
        messages, ready = channels.wait(None, [0] if reading and not channels.full else [])
        for channel, data in messages:
            if channel == exec_stream.STATUS:
                return exec_stream.end_of(data)
            _write(channel, over.rest(data) if channel == exec_stream.STDERR else data)
        if reading and (over.said or 0 in ready):
            data = b"" if over.said else _read(0)
            reading = bool(data)
            pass_on(data)
    return None


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ)
    except OSError:  # a terminal that was hung up
        return b""


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_terminal(descriptor: int) -> bool:
    return os.isatty(descriptor)
