"""Run commands in a process's container.

A command's output is either captured or passed on to this program's terminal or standard streams.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import stat
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster import ExecResult
from symphony.errors import BackendError, NotFound, SpecError, Unreachable, Unsupported
from symphony.support.raw_terminal import (
    DetachKeys,
    has_terminal,
    joined_message,
    left_message,
    raw_mode,
    read_available,
    watched_size,
    write_all,
)
from symphony_kube.access import exec_stream
from symphony_kube.access.exec_stream import CommandExit, ExecStream, open_stream
from symphony_kube.api.errors import ApiError
from symphony_kube.api.streams import channels
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status import find_pod
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony.model.settings.validators import Strings
    from symphony_kube.api.kube_experiment import KubeExperiment

# Prefer bash, and fall back to sh if the image does not contain bash.
LOGIN_SHELL = ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"]

# Some container runtimes report the exit code only after all input has been read. Therefore, a
# shell in the container reads the input that a command has not used. Because this input may never
# end, the shell writes a marker to standard error when the command has exited. No more input is
# sent after the marker.
_READ_ALL_INPUT = """\
marker=$1; shift
"$@"; code=$?; printf %s "$marker" >&2; cat >/dev/null; exit $code
"""

_NO_PROGRAM = ("executable file not found", "not found in $path")
_NO_FILE = "no such file or directory"
_NOT_EXECUTABLE = ("permission denied", "exec format error", "is a directory")
_OUTPUT_CHANNELS = (channels.STDOUT, channels.STDERR, channels.STATUS)
_TERMINAL_CHANNELS = (channels.STDIN, channels.STDOUT, channels.STATUS, channels.RESIZE)
_CHUNK_BYTES = 1 << 16
# The character that a terminal driver interprets as the end of the input (Ctrl-D).
_END_OF_INPUT = b"\x04"


def run_command(
    experiment: KubeExperiment,
    process: str,
    command: Strings,
    process_group: str | None = None,
    *,
    interactive: bool = False,
) -> ExecResult:
    """Run a command in a process's container; see `symphony.cluster.Cluster.exec_command`.

    An ``interactive`` command is connected to the terminal, or to this program's standard streams
    if standard input or standard output is not a terminal. Raises `NotFound` if the process is not
    running or if its image does not contain the program.
    """
    from symphony.model.settings.validators import strings

    argv = strings(command, "command")
    ref = find_pod.running_container(experiment, process, process_group)
    if not interactive:
        return run_in_container(experiment, ref, argv)
    if has_terminal():
        code = _run_on_terminal(experiment, ref, argv)
    else:
        code = _run_with_standard_streams(experiment, ref, argv)
    return ExecResult(exit_code=code)


def login(experiment: KubeExperiment, process: str, process_group: str | None = None) -> None:
    """Connect the terminal to the terminal of a process with the setting ``tty``.

    For other processes, run an interactive shell in the process's container. Raises `Unsupported`
    if there is no terminal.
    """
    if not has_terminal():
        raise Unsupported(
            "login requires a terminal; without one, run a command: "
            f"symphony exec {experiment.name} {process} -- CMD..."
        )
    ref = find_pod.running_container(experiment, process, process_group)
    if ref.tty:
        _attach(experiment, ref)
    else:
        _run_on_terminal(experiment, ref, LOGIN_SHELL)


def _attach(experiment: KubeExperiment, ref: ContainerRef) -> None:
    """Connect the terminal to the terminal of a process until the user detaches."""
    query = [("container", ref.process)]
    query += [(name, "true") for name in ("stdin", "stdout", "tty")]
    path = find_pod.pod_path(experiment.scope, ref.pod, "attach")
    try:
        stream = open_stream(experiment.api, path, query=query, channels=_TERMINAL_CHANNELS)
    except ApiError as exc:
        action = f"attach to {ref.process!r}"
        raise missing_right(exc, action, "get and create pods/attach", experiment.scope) from exc
    write_all(2, joined_message(ref.process))
    with stream, raw_mode(0), watched_size() as resized:
        _send_terminal_size(stream)
        _connect_terminal(stream, keys=0, resized=resized, detach_keys=DetachKeys())
    write_all(2, left_message(ref.process))


# --- the streams of one command ---


def open_exec(
    experiment: KubeExperiment,
    ref: ContainerRef,
    argv: Sequence[str],
    *,
    stdin: bool = False,
    tty: bool = False,
) -> ExecStream:
    """Start a command in a container. Raises `BackendError` if the server refuses it."""
    streams = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query = [("container", ref.process)]
    query += [("command", word) for word in argv]
    query += [(name, str(enabled).lower()) for name, enabled in streams.items()]
    path = find_pod.pod_path(experiment.scope, ref.pod, "exec")
    opened = _TERMINAL_CHANNELS if tty else _OUTPUT_CHANNELS
    if stdin and not tty:
        opened = (channels.STDIN, *_OUTPUT_CHANNELS)
    try:
        return open_stream(experiment.api, path, query=query, channels=opened)
    except ApiError as exc:
        action = f"run a command in {ref.process!r}"
        raise missing_right(exc, action, "get and create pods/exec", experiment.scope) from exc


def check_exit(result: CommandExit | None, ref: ContainerRef, argv: Sequence[str]) -> int:
    """Return a command's exit code.

    Raises `Unreachable` if the connection was lost before the command exited, and `NotFound`,
    `SpecError` or `BackendError` if the command could not be run.
    """
    process, program = ref.process, argv[0]
    if result is None:
        raise Unreachable(
            f"the connection to {process!r} ended before {program!r} exited; the command may still "
            "be running, or the container has exited"
        )
    if result.exit_code is not None:
        return result.exit_code
    reason = result.reason
    if _is_about_missing_program(reason, program):
        raise NotFound(f"cannot run {program!r} in {process!r}: its image has no such program")
    if any(text in reason.lower() for text in _NOT_EXECUTABLE):
        *_, last = reason.removesuffix(": unknown").rpartition(": ")
        raise SpecError(f"cannot run {program!r} in {process!r}: {last or reason}")
    raise BackendError(f"cannot run {program!r} in {process!r}: {reason}")


def _is_about_missing_program(reason: str, program: str) -> bool:
    """Return whether a runtime could not run a command because the image lacks the program.

    Other files are missing if the container exits at the same time, so the message must contain the
    quoted path of the program.
    """
    text = reason.lower()
    if any(phrase in text for phrase in _NO_PROGRAM):
        return True
    return _NO_FILE in text and re.search(rf'["`]{re.escape(program)}\\?["`]', reason) is not None


def parse_exit(status: bytes | None) -> CommandExit | None:
    """Parse a message from the status channel. Return None if there was no message."""
    return None if status is None else exec_stream.parse_status(status)


def run_in_container(
    experiment: KubeExperiment,
    ref: ContainerRef,
    argv: Sequence[str],
    *,
    timeout: float | None = None,
) -> ExecResult:
    """Run a command in a container, and return its result with its output.

    Raises `NotFound` if the image does not contain the program, and `BackendError` for other
    errors, and if the command has not exited ``timeout`` seconds after its start.
    """
    output = {channels.STDOUT: bytearray(), channels.STDERR: bytearray()}
    status: bytes | None = None
    deadline = None if timeout is None else time.monotonic() + timeout
    with open_exec(experiment, ref, argv) as stream:
        while not stream.closed and status is None:
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                raise Unreachable(
                    f"{argv[0]!r} was not run in {ref.process!r} within {timeout:g} s"
                )
            messages, _ = stream.exchange(seconds)
            for channel, data in messages:
                if channel == channels.STATUS:
                    status = data
                elif channel in output:
                    output[channel] += data
    return ExecResult(
        exit_code=check_exit(parse_exit(status), ref, argv),
        stdout=output[channels.STDOUT].decode(errors="replace"),
        stderr=output[channels.STDERR].decode(errors="replace"),
    )


# --- on the terminal ---


def _run_on_terminal(experiment: KubeExperiment, ref: ContainerRef, argv: Sequence[str]) -> int:
    """Run a command on the terminal. The command receives all keystrokes, including Ctrl-C."""
    with open_exec(experiment, ref, argv, stdin=True, tty=True) as stream:
        with raw_mode(0), watched_size() as resized:
            _send_terminal_size(stream)
            result = _connect_terminal(stream, keys=0, resized=resized)
    return check_exit(result, ref, argv)


def _connect_terminal(
    stream: ExecStream, *, keys: int, resized: int, detach_keys: DetachKeys | None = None
) -> CommandExit | None:
    """Relay keystrokes, output and terminal sizes until the command exits.

    ``keys`` is the file descriptor of the terminal. ``resized`` is a file descriptor that becomes
    readable when the terminal size changes. Return None if the connection was lost before the
    command exited, or if the user typed ``detach_keys``.
    """
    reading = True
    while not stream.closed:
        watched = [resized]
        if reading and not stream.full:
            watched.append(keys)
        messages, ready = stream.exchange(None, watched)
        for channel, data in messages:
            if channel == channels.STATUS:
                return exec_stream.parse_status(data)
            write_all(1, data)
        if resized in ready:
            os.read(resized, _CHUNK_BYTES)
            _send_terminal_size(stream)
        if keys in ready:
            typed = read_available(keys)
            reading = bool(typed)
            if detach_keys is not None:
                typed = detach_keys.filter(typed)
                if detach_keys.pressed:
                    return None
                if reading and not typed:
                    continue
            stream.send(channels.STDIN, typed or _END_OF_INPUT)
    return None


def _send_terminal_size(stream: ExecStream) -> None:
    size = os.get_terminal_size(1)
    if size.columns and size.lines:
        message = json.dumps({"Width": size.columns, "Height": size.lines})
        stream.send(channels.RESIZE, message.encode())


# --- with the standard streams of this program ---


def _run_with_standard_streams(
    experiment: KubeExperiment, ref: ContainerRef, argv: Sequence[str]
) -> int:
    """Run a command with this program's standard streams. If standard input is a terminal, the
    command receives no input.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    source = _standard_input()
    if source is None:
        with open_exec(experiment, ref, argv) as stream:
            result = _connect_streams(stream, None, b"")
        return check_exit(result, ref, argv)
    marker = f"[symphony {secrets.token_hex(16)}]"
    wrapper = _input_wrapper(experiment, ref, marker)
    with open_exec(experiment, ref, [*wrapper, *argv], stdin=True) as stream:
        result = _connect_streams(stream, source, marker.encode())
    return check_exit(result, ref, argv)


def _input_wrapper(experiment: KubeExperiment, ref: ContainerRef, marker: str) -> list[str]:
    """Return the words to put before a command with input.

    If the image contains no shell, there are none, and the command must read all its input.
    """
    try:
        run_in_container(experiment, ref, ["sh", "-c", ":"])
    except NotFound:
        return []
    return ["sh", "-c", _READ_ALL_INPUT, "sh", marker]


def _standard_input() -> bytes | None:
    """Return the beginning of standard input, or None if there is no input.

    This is the case if standard input is closed, empty, a terminal or another device. The beginning
    is empty if no input is available yet.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if not poll.poll(0):
        return b""
    return read_available(0) or None


class _MarkerFilter:
    """A filter that removes a marker from a stream. ``found`` is True once the marker has been
    removed.
    """

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._held = b""
        self.found = False

    def filter(self, data: bytes) -> bytes:
        """Return ``data`` without the marker.

        Data that could be the beginning of the marker is held back until the next call.
        """
        if self.found or not self._marker:
            return data
        data = self._held + data
        before, marker, after = data.partition(self._marker)
        if marker:
            self.found, self._held = True, b""
            return before + after
        held_bytes = min(len(data), len(self._marker) - 1)
        while held_bytes and not self._marker.startswith(data[-held_bytes:]):
            held_bytes -= 1
        split = len(data) - held_bytes
        self._held = data[split:]
        return data[:split]

    def flush(self) -> bytes:
        """Return the data that was held back. Call this method at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _connect_streams(
    stream: ExecStream, first_input: bytes | None, marker: bytes
) -> CommandExit | None:
    """Relay output and input until the command exits.

    When standard error contains ``marker``, stop reading input. The marker itself is not passed on.
    Return None if the connection was lost before the command exited.
    """
    marker_filter = _MarkerFilter(marker)
    try:
        return _pass_data(stream, first_input, marker_filter)
    finally:
        write_all(channels.STDERR, marker_filter.flush())


def _pass_data(
    stream: ExecStream, first_input: bytes | None, marker_filter: _MarkerFilter
) -> CommandExit | None:
    reading = first_input is not None
    if first_input:
        stream.send(channels.STDIN, first_input)
    while not stream.closed:
        watched = [0] if reading and not stream.full else []
        messages, ready = stream.exchange(None, watched)
        for channel, data in messages:
            if channel == channels.STATUS:
                return exec_stream.parse_status(data)
            if channel == channels.STDERR:
                data = marker_filter.filter(data)
            write_all(channel, data)
        data = b""
        if 0 in ready and not marker_filter.found:
            data = read_available(0)
        if data:
            stream.send(channels.STDIN, data)
        elif reading and (0 in ready or marker_filter.found):
            reading = False
            stream.close_channel(channels.STDIN)
    return None
