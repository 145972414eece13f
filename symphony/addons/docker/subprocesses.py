"""Running an engine's command-line program: long steps, whose output is passed on line by line, and
short queries.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from symphony.errors import BackendError, Unreachable
from symphony.support.inherited_signals import observable_exits

Output = Callable[[str], object]

# The time limit for a query to an engine, in seconds.
_QUERY_TIMEOUT_SECONDS = 20.0
# The time limit, in seconds, for a command to exit after its step has been interrupted.
_EXIT_TIMEOUT_SECONDS = 10.0
# How many of a step's last output lines are kept, how many of these an error message contains, and
# the maximum length of each line in the message.
_KEPT_LINES, _REPORTED_LINES, _LINE_LENGTH = 100, 6, 300
# ECMA-48 control sequences and strings, which change the colour and position of text on a terminal,
# and other control characters.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~] | \x1b[]PX^_].*?(?:\x07|\x1b\\) | \x1b[ -/]*[0-~]"
    r" | [^\t -\x7e\xa0-\U0010ffff]",
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
    """Run a command, and pass each line of its output, including a final newline, to ``output``.

    Return the last lines (at most 100), without their newlines. Paragraphs of the output that start
    with ``without`` are skipped. Raises `Unreachable` if the command cannot be run, and
    `BackendError` if it fails. The message of `BackendError` starts with ``what`` and contains the
    last lines of output.
    """
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with _running(command, env) as running:
        for line in _without_paragraphs(without, running.stdout or ()):
            last.append(line.rstrip())
            if output is not None:
                output(f"{last[-1]}\n")
    if running.returncode:
        raise step_error(what, running.returncode, last)
    return list(last)


def _without_paragraphs(beginning: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, except for paragraphs that begin with ``beginning``. A paragraph includes
    the indented and empty lines that follow its first line.
    """
    within = False
    for line in lines:
        begins = bool(beginning) and line.startswith(beginning)
        within = begins or (within and (line.startswith(" ") or not line.strip()))
        if not within:
            yield line


@contextlib.contextmanager
def _running(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command and yield its process. On exit, wait for the process. If an exception, such
    as an interrupt, is raised inside the context, stop the process first.
    """
    with observable_exits():
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
                _stop(running)
                raise


def _stop(running: subprocess.Popen[str]) -> None:
    running.terminate()
    try:
        running.wait(_EXIT_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        running.kill()


def run_query(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    timeout: float | None = _QUERY_TIMEOUT_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a short command, and return its output and exit code. Raises `Unreachable` if the command
    cannot be run or runs for more than ``timeout`` seconds.
    """
    try:
        with observable_exits():
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
        raise Unreachable(f"{command[0]} did not respond within {timeout:.0f} s") from exc
    except OSError as exc:
        raise Unreachable(f"{command[0]} cannot be run: {exc.strerror}") from exc


def step_error(what: str, code: int, lines: Iterable[str]) -> BackendError:
    """Return the error for a failed step. The message is a single line that contains the last lines
    of output, separated by ``|``.
    """
    plain = [_CONTROLS.sub("", line).strip() for line in lines]
    # Omit lines that consist of hyphens, because they only separate the parts of the output.
    nonempty = [line for line in plain if line.strip("-")]
    output = " | ".join(line[:_LINE_LENGTH] for line in nonempty[-_REPORTED_LINES:])
    return BackendError(f"{what} failed with exit code {code}: {output or 'there was no output'}")
