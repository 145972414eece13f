r"""The keeper: a window's shell, which runs the process as its child.

A keeper exits when tmux has read all of its process's output.

tmux closes a terminal when the window's process has exited and ``FIONREAD`` reports nothing to
read. After a write, the kernel moves the bytes from one buffer to another, but only after a short
delay. During the delay, ``FIONREAD`` reports 0, so the bytes would be lost. Therefore, the window's
process is a keeper, and the experiment's process is the keeper's child. When the child has exited,
the keeper writes a mark, which is invisible on the screen. The keeper exits when the mark has
arrived in the log, because all output before the mark has arrived by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# The mark is an operating system command (OSC) with an unassigned number. Terminals ignore the
# mark, and tmux passes it on to the log.
_MARK = "\x1b]5379;symphony;{}\x1b\\"
# The pattern begins with fixed text, which `re` finds about 50 times faster than a repetition.
_WRITTEN_MARK = re.compile(r"\x1b\]5379;symphony;\d+\x1b\\")
# The pattern of the last line of a log file that contains only marks.
MARK_LINE = re.compile(rf"(?:{_WRITTEN_MARK.pattern})+".encode())
# A mark is shorter than this number of characters.
_LONGEST_MARK = 64

STARTED, EXITED = "started", "exited"

# The prefix of the variables that the script renames by removing the prefix.
RENAMED_PREFIX = "SYMPHONY_SET_"

# The arguments of the script: the FIFO for reports, the gate, the umask, the limit on open files,
# the mark of the run, the directory, the names of the variables to rename, "--", and the command.
# The mark is a limit on file locks, which bash calls -x and dash calls -w.
#
# The variables are renamed immediately before the command is executed, because the shell and its
# commands, such as cd, change some of them. (bash always sets the variable "_" itself.)
#
# With job control (set -m), the process leads its own process group, which owns the terminal. When
# the process is stopped, by Ctrl-Z or by a signal, the shell continues as if the process had
# exited. After Ctrl-Z, the keeper continues the process at once, because the window has no shell to
# return to. After SIGSTOP, the keeper waits until another program continues the process, or until
# the process is stopped again because it does not own the terminal. The keeper then gives the
# terminal back to the process. In shells other than bash, `wait` reports that the process was
# stopped; in bash, `wait` would wait for the exit. `continue_job` calls itself, because bash leaves
# a loop when the process in the loop is stopped. The keeper ignores INT, QUIT, TERM and PIPE, but
# not HUP. The keeper sets no variable before the process starts, because the process could have a
# variable with the same name.
#
# Shells report on standard error that a process was killed by a signal. bash needs the terminal on
# standard error, but does not report a signal for which a trap is set. Other shells open the
# terminal themselves, so their standard error can be discarded.
#
# After the process has exited, the keeper executes a second script without the variable
# SYMPHONY_ROLE. If the supervisor was killed, a process with this variable counts as running.
#
# The gate delivers one line when logging has started, and another line when all output has been
# read. The gate is closed when the supervisor exits. A process at its gate then opens the gate
# again, and so waits for a new supervisor or for the deletion of the experiment. Without a
# supervisor, the keeper waits one second, which is long enough for the kernel to move the output to
# the buffer that tmux reads. In that case, no other process makes tmux check for exits, and tmux
# can miss an exit while it closes a window. A background process therefore keeps the terminal open
# after the keeper has exited, and sends SIGCHLD to tmux.
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
    until read -r _ <&9; do
        exec 9<"$2" || exit 126
    done
    umask "$3"
    ulimit -S -n "$4" 2>/dev/null
    { ulimit -S -x "$5" || ulimit -S -w "$5"; } 2>/dev/null
    exec 2>&7
    cd "$6" || exit 126
    shift 6
    while [ "$1" != -- ]; do
        eval "export $1=\"\$SYMPHONY_SET_$1\"; unset SYMPHONY_SET_$1"
        shift
    done
    shift
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
unset SYMPHONY_ROLE
exec /bin/sh -c '
    set -m
    echo "exited $$ $1" >&8
    printf "\033]5379;symphony;%s\033\\\\" $$
    if ! read -r _ <&9; then
        command -p sleep 1
        (command -p sleep 1; kill -CHLD $PPID) &
    fi
    exit "$1"
' sh "$code" 2>/dev/null
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
    """Return the reports in ``text``, which consists of complete lines.

    >>> reports("started 12 13")
    [Report(event='started', keeper=12, value=13)]
    """
    words = (line.split() for line in text.splitlines())
    return [Report(event, int(keeper), int(value)) for event, keeper, value in words]


def mark(keeper: int) -> str:
    """Return the mark that a keeper writes when its process has exited."""
    return _MARK.format(keeper)


def clean(text: str) -> str:
    r"""Extract a process's output from its window's output.

    The result contains neither ``\r`` before newlines nor the keeper's mark.

    >>> clean("one\r\ntwo" + mark(12))
    'one\ntwo'
    """
    return _WRITTEN_MARK.sub("", text).replace("\r\n", "\n")


def clean_pieces(pieces: Iterable[str]) -> Iterator[str]:
    r"""Yield a process's output from its window's output; see `clean`.

    The end of each piece is kept back until the next piece arrives, because it can be the beginning
    of a mark or of ``\r\n``.

    >>> list(clean_pieces(["one\r", "\ntwo", mark(12)]))
    ['one', '\ntwo', '', '']
    """
    rest = ""
    for piece in pieces:
        text = rest + piece
        end = len(text) - text.endswith(("\r", "\x1b"))
        begin_of_mark = text.find("\x1b]", max(0, end - _LONGEST_MARK))
        if begin_of_mark >= 0:
            end = begin_of_mark
        yield clean(text[:end])
        rest = text[end:]
    yield clean(rest)
