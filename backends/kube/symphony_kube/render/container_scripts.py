"""The shell scripts that run in containers. Pure.

The scripts use only commands of a POSIX shell, except for ``sleep``. The manifests of Pods contain
them, without their comments and their indentation. See docs/adr/0015-stopping-in-containers.md.
"""

from __future__ import annotations

import enum
import functools
import posixpath
from collections.abc import Sequence
from pathlib import Path

from symphony_kube.render.text import escape

SHELL = "/bin/sh"
_MARK = "# symphony: "
# The first line of a script that runs as the first process of a container. This process is not the
# program, so it does not receive the signals for the program.
FIRST_PROCESS_MARK = f"{_MARK}first process"
STOP_MARK = f"{_MARK}stop"
# The directory in the containers of processes that contains the script "stop".
SCRIPTS_DIRECTORY = "/symphony/scripts"
STOP_PATH = f"{SCRIPTS_DIRECTORY}/stop"
# The line that "stop" adds to the termination message of a container. It is the only trace of the
# stop in the status of a Pod.
STOPPED_MESSAGE = "symphony: stopped by Kubernetes"
# The exit code of the script that sends a signal if no process handles the signal.
UNHANDLED_CODE = 3
# The integers of a shell have 64 bits, and it counts hundredths of a second.
_MAX_SECONDS = 10**9
_INCLUDE = "#include "
# Run a shell line with bash if the image contains it, as the other backends do.
RUN_LINE = """\
command -v bash >/dev/null 2>&1 && exec bash -c "$@"
exec /bin/sh -c "$@\""""
# Shells, which can be replaced by any program, and programs that handle TERM and exit at once,
# although the programs that they have started do not receive the signal. Their images contain a
# shell.
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_STARTERS = _SHELLS | {
    *("npm", "npx", "pnpm", "pnpx", "yarn", "yarnpkg", "nodemon", "concurrently", "go"),
}


class SignalMode(enum.Enum):
    """The action of the script that sends a signal if no process handles the signal."""

    REFUSE = "refuse"
    CHECK = "check"
    ALL = "all"
    EVERY = "every"


@functools.cache
def script(name: str) -> str:
    """Return the text of a script, such as ``"stop"``."""
    return "\n".join(_lines(f"{name}.sh"))


def _lines(file_name: str) -> list[str]:
    result = []
    path = Path(__file__).with_name("scripts") / file_name
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith(_INCLUDE):
            result += _lines(text.removeprefix(_INCLUDE))
        elif text and (not text.startswith("#") or text.startswith(_MARK)):
            result.append(text)
    return result


def shell_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a shell line with bash, or with sh if there is none.

    ``arguments`` contains the shell line, the name of the shell, and the arguments of the line.
    """
    return [SHELL, "-c", RUN_LINE, SHELL, *arguments]


def with_first_process(command: Sequence[str]) -> list[str]:
    """Return the command of a container in which a shell starts the program.

    ``command`` is the escaped command of the program. The container runs until the processes that
    the program leaves behind have stopped, too.
    """
    return [SHELL, "-c", escape(script("first_process")), SHELL, *command]


def is_starter(command: Sequence[str]) -> bool:
    """Return whether a command starts another program and does not pass TERM on."""
    return bool(command) and posixpath.basename(command[0]) in _STARTERS


def late_centiseconds(grace: int) -> int:
    """Return the time after which programs that wait for others are not waited for any longer.

    ``grace`` is the grace period in seconds. The time is two thirds of it, in hundredths of a
    second.
    """
    return min(grace, _MAX_SECONDS) * 200 // 3


def stop_command(
    number: int,
    grace: int,
    *,
    group: bool = False,
    report: bool = False,
    failure: bool = False,
    command: Sequence[str] = (),
    mounted: bool = False,
) -> list[str]:
    """Return the command that stops the program of a container.

    ``number`` is the number of the signal, and ``grace`` the grace period in seconds. With
    ``group``, all processes receive the signal. With ``report``, the termination message of the
    container contains `STOPPED_MESSAGE`, and with ``failure`` also, its exit code is not 0 if its
    first process is a script. ``command`` stops the program instead of the signal. With
    ``mounted``, the container has the script at `STOP_PATH`.
    """
    given = {"group": group, "report": report, "failure": report and failure}
    modes = " ".join(mode for mode, is_given in given.items() if is_given)
    arguments = [str(int(number)), str(late_centiseconds(grace)), "", modes, *command]
    if mounted:
        return [SHELL, STOP_PATH, *arguments]
    return [SHELL, "-c", script("stop"), SHELL, *arguments]


def signal_command(number: int, mode: SignalMode) -> list[str]:
    """Return the command that sends a signal to the program of a container.

    If no process handles the signal and it would end the program, all processes receive it with
    `SignalMode.ALL`. Otherwise, the command exits with `UNHANDLED_CODE`. With `SignalMode.CHECK`,
    no signal is sent. With `SignalMode.EVERY`, all processes receive it in any case.
    """
    return [SHELL, "-c", script("signal"), SHELL, str(int(number)), mode.value]
