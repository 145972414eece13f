"""Running an engine's command line: long steps line by line as they come, short questions at once."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from symphony.errors import BackendError, Unreachable

Output = Callable[[str], object]

# How long an engine may take to say what it is, in seconds.
_ASKING = 20.0
# How long an engine has to end when a step is broken off, in seconds.
_ENDING = 10.0
# How many of the last lines of a step are kept; how many of them an error tells, and how much of each.
_KEPT, _TOLD, _WIDTH = 100, 6, 300
# ECMA-48: control sequences and strings, which colour and move what a terminal shows; and what else is no text.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~] | \x1b[]PX^_].*?(?:\x07|\x1b\\) | \x1b[ -/]*[0-~] | [^\t -\x7e\xa0-\U0010ffff]",
    re.VERBOSE,
)


def step(
    what: str,
    command: Sequence[str],
    env: Mapping[str, str],
    output: Output | None = None,
    *,
    without: str = "",
) -> list[str]:
    """Run a command and hand its output on line by line, each with its newline; its last lines.

    A paragraph that begins with ``without`` is left out. Raises `BackendError` with the last lines where it fails;
    ``what`` begins the message.
    """
    last: deque[str] = deque(maxlen=_KEPT)
    with _running(command, env) as running:
        for line in _leaving_out(without, running.stdout or ()):
            last.append(line.rstrip())
            if output is not None:
                output(f"{last[-1]}\n")
    if running.returncode:
        raise failed(what, running.returncode, last)
    return list(last)


def _leaving_out(beginning: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines but for paragraphs that begin so, each with the indented and the empty lines that follow."""
    within = False
    for line in lines:
        begins = bool(beginning) and line.startswith(beginning)
        within = begins or (within and (line.startswith(" ") or not line.strip()))
        if not within:
            yield line


@contextlib.contextmanager
def _running(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command that has ended at the end, by itself or because its reader was interrupted."""
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **env},
        )
    except OSError as exc:
        raise Unreachable(f"{command[0]} cannot be run: {exc.strerror}") from exc
    with running:
        try:
            yield running
        except BaseException:
            _end(running)
            raise


def _end(running: subprocess.Popen[str]) -> None:
    running.terminate()
    try:
        running.wait(_ENDING)
    except subprocess.TimeoutExpired:
        running.kill()


def asked(
    command: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float | None = _ASKING
) -> subprocess.CompletedProcess[str]:
    """What a short command answers. Raises `Unreachable` where it does not."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired as exc:
        raise Unreachable(f"{command[0]} said nothing for {timeout:.0f} s") from exc
    except OSError as exc:
        raise Unreachable(f"{command[0]} cannot be run: {exc.strerror}") from exc


def failed(what: str, code: int, lines: Iterable[str]) -> BackendError:
    """The error of a step that failed, in one line: the last that it said stand in it, parted by ``|``."""
    plain = (_CONTROLS.sub("", line).strip() for line in lines)
    told = [line for line in plain if line.strip("-")]
    said = " | ".join(line[:_WIDTH] for line in told[-_TOLD:])
    return BackendError(f"{what} failed with exit code {code}: {said or 'it said nothing'}")
