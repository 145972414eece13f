r"""The keeper: the shell of a window, which runs the process as its child and exits when all of the
output has been read.

tmux closes a terminal when the process of the window has exited and ``FIONREAD`` finds nothing to
read. The kernel moves written bytes from one buffer to another with a delay. During the delay,
``FIONREAD`` returns 0, and the bytes would be lost. Therefore, the process of the window is a
keeper, and the process of the experiment is its child. When the child has exited, the keeper writes
a mark, which is invisible on the screen. The keeper exits when the mark has arrived in the log,
because all output before the mark has arrived by then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The mark is an operating system command (OSC) with an unknown number. Terminals ignore the mark,
# and tmux passes it on to the log.
_MARK = "\x1b]5379;symphony;{}\x1b\\"
_MARKS = re.compile(r"(?:\x1b\]5379;symphony;\d+\x1b\\)+")

STARTED, EXITED = "started", "exited"

# The arguments of the script: the FIFO for reports, the gate, the umask, the limit of open files,
# the directory, and the command.
#
# With job control (set -m), the process leads its own process group, which owns the terminal. When
# the process is stopped, by Ctrl-Z or by a signal, the shell continues as if it had exited. After
# Ctrl-Z, the keeper continues it at once, because the window has no shell to return to. A process
# that was stopped with SIGSTOP gets the terminal back, without a signal, when another program has
# continued it, or when it was stopped again because it did not own the terminal. `wait` reports
# that the process was stopped; in bash, however, `wait` would wait for the exit. The function calls
# itself because bash leaves a loop when its process is stopped. The keeper ignores every signal
# except a hang-up. The keeper sets no variable before the process starts, because the process could
# have a variable with the same name.
#
# Shells report on standard error that a process was killed. bash needs its terminal there; other
# shells open the terminal themselves.
#
# The gate delivers one line when the log has started and one when all output has been read. The
# gate is closed when the supervisor exits. Without a supervisor, the keeper waits one second, which
# is enough for the kernel to move the output. In that case, no process makes tmux check for the
# exit, which tmux can miss while it closes a window. A background process therefore keeps the
# terminal open after the keeper has exited, and sends SIGCHLD to tmux.
SCRIPT = r"""exec 8>"$1" 9<"$2" 7>&2
trap '' INT QUIT TERM PIPE
if [ "$BASH_VERSION" ]; then
    trap : KILL ALRM USR1 USR2 ABRT SEGV BUS FPE ILL SYS TRAP
else
    exec 2>/dev/null
fi
set -m
(
    trap - INT QUIT TERM PIPE
    if cd -P /proc/self; then
        echo "started $$ ${PWD##*/}"
        cd /
    else
        echo "started $$ $(exec sh -c 'echo $PPID')"
    fi >&8
    read -r _ <&9
    umask "$3"
    ulimit -S -n "$4" 2>/dev/null
    exec 2>&7
    cd "$5" || exit 126
    shift 5
    exec "$@" 7>&- 8>&- 9<&-
)
code=$?
continue_job() {
    pid=
    case $code in 14[5-9] | 150) jobs %1 >/dev/null 2>&1 || return ;; *) return ;; esac
    if [ "$code" = 147 ]; then
        read -r pid _ <"/proc/$$/task/$$/children"
        while read -r stat <"/proc/$pid/stat" && [ "${stat##*) T*}" = "" ] && [ "$code" = 147 ]; do
            command -p sleep 1
            [ "$BASH_VERSION" ] || { wait %1; code=$?; }
        done 2>/dev/null
    fi
    fg %1 >/dev/null
    code=$?
    continue_job
}
continue_job
echo "exited $$ $code" >&8
printf '\033]5379;symphony;%s\033\\' $$
if ! read -r _ <&9; then
    command -p sleep 1
    (command -p sleep 1; kill -CHLD $PPID) &
fi
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Report:
    """A report from a keeper that its process has ``started`` or ``exited``.

    ``value`` is the pid of the process if it has started, or its exit code if it has exited.
    """

    event: str
    keeper: int
    value: int


def reports(text: str) -> list[Report]:
    """Return the reports in the complete lines of a text.

    >>> reports("started 12 13")
    [Report(event='started', keeper=12, value=13)]
    """
    words = (line.split() for line in text.splitlines())
    return [Report(event, int(keeper), int(value)) for event, keeper, value in words]


def mark(keeper: int) -> str:
    """Return the text that a keeper writes when its process has exited."""
    return _MARK.format(keeper)


def clean(text: str) -> str:
    r"""Return the output of a process, extracted from the output of its window, without ``\r``
    before newlines and without the mark of a keeper.

    >>> clean("one\r\ntwo" + mark(12))
    'one\ntwo'
    """
    return _MARKS.sub("", text).replace("\r\n", "\n")


def is_mark(line: str) -> bool:
    """Return whether a line consists only of marks of keepers, and therefore does not count as a
    line.
    """
    return _MARKS.fullmatch(line) is not None


def last_lines(text: str, count: int) -> str:
    r"""Return the last ``count`` lines of ``text``.

    Only a newline ends a line, as in all functions that read logs.

    >>> last_lines("one\ntwo\nthree", 2)
    'two\nthree'
    """
    return "".join(re.findall(r".*\n|.+", text)[-count:]) if count > 0 else ""
