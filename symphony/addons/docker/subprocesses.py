"""Running the command line of an engine: long steps with output line by line, and short queries."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from symphony.errors import BackendError, Unreachable

Output = Callable[[str], object]

# The time limit for a query to an engine, in seconds.
_QUERY_TIMEOUT_SECONDS = 20.0
# The time in seconds that an engine is given to exit after a step is interrupted.
_EXIT_TIMEOUT_SECONDS = 10.0
# The number of last lines that are kept, the number of lines in an error message, and the maximum
# length of each line.
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
    """Run a command, pass each line of its output, including the newline, to ``output``, and return
    the last lines.

    A paragraph that starts with ``without`` is skipped. If the command fails, `BackendError` is
    raised; its message starts with ``what`` and contains the last lines of output.
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
    the indented and empty lines that follow.
    """
    within = False
    for line in lines:
        begins = bool(beginning) and line.startswith(beginning)
        within = begins or (within and (line.startswith(" ") or not line.strip()))
        if not within:
            yield line


@contextlib.contextmanager
def _running(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Yield a running command. After the context, the command has exited, either by itself or
    because the reader was interrupted.
    """
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
    """Return the output of a short command. Raises `Unreachable` if the command fails."""
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
        raise Unreachable(f"{command[0]} did not respond within {timeout:.0f} s") from exc
    except OSError as exc:
        raise Unreachable(f"{command[0]} cannot be run: {exc.strerror}") from exc


def step_error(what: str, code: int, lines: Iterable[str]) -> BackendError:
    """Return the error for a failed step. Its message is one line and contains the last lines of
    output, separated by ``|``.
    """
    plain = [_CONTROLS.sub("", line).strip() for line in lines]
    # Omit lines that consist of hyphens, because they only separate the parts of the output.
    nonempty = [line for line in plain if line.strip("-")]
    output = " | ".join(line[:_LINE_LENGTH] for line in nonempty[-_REPORTED_LINES:])
    return BackendError(f"{what} failed with exit code {code}: {output or 'there was no output'}")
