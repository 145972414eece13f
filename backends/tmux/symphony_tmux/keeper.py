r"""The keeper: the shell of a window, which runs the process as its child and stays until its last word is read.

tmux closes a terminal when the window's own process has ended and ``FIONREAD`` finds nothing to read. The kernel
moves what was written there from one buffer to another a little later: in between, ``FIONREAD`` is 0 and the bytes
are lost. So the window's own process is not the process but its keeper. When the process has ended it writes a mark,
which shows on no screen, and ends itself when that mark has arrived in the log: then all before it has, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A command for terminals (OSC) of a number that none knows: ignored, and passed on to the log.
_MARK = "\x1b]5379;symphony;{}\x1b\\"
_MARKS = re.compile(r"(?:\x1b\]5379;symphony;\d+\x1b\\)+")

BEGAN, ENDED = "began", "ended"

# Its words: where to report, the gate, umask, open files, folder, and the command.
#
# With job control (set -m) the process leads a group of its own, to which the terminal belongs. A stop by Ctrl-Z or by
# signal makes the shell go on as if the process had ended. After Ctrl-Z, which in a window without a shell to return
# to has to do nothing, it is continued at once; one stopped on purpose (SIGSTOP) gets the terminal back, and no
# signal, when somebody has continued it, or when it was stopped again because it had none: that tells wait, which in
# bash would rather wait for the end. (No loop: bash leaves one when its process is stopped.) The keeper itself
# minds no signal but a hang-up. It sets no variable before the process: that could be one of the process's own.
#
# Shells tell on standard error that a process was killed; there bash needs its terminal, others open one themselves.
#
# The gate gives a line when the log has begun, and one when all has been read; with the supervisor it ends. Without
# one, a second is time enough for the kernel. Nor is there then who makes tmux look when it misses an end, which it
# does while it tears a window down: somebody keeps the terminal open beyond the keeper's end, and makes it look.
SCRIPT = r"""exec 8>"$1" 9<"$2" 7>&2
trap '' INT QUIT TERM PIPE
if [ "$BASH_VERSION" ]; then trap : KILL ALRM USR1 USR2 ABRT SEGV BUS FPE ILL SYS TRAP; else exec 2>/dev/null; fi
set -m
(
    trap - INT QUIT TERM PIPE
    if cd -P /proc/self; then echo "began $$ ${PWD##*/}"; cd /; else echo "began $$ $(exec sh -c 'echo $PPID')"; fi >&8
    read -r _ <&9
    umask "$3"
    ulimit -S -n "$4" 2>/dev/null
    exec 2>&7
    cd "$5" || exit 126
    shift 5
    exec "$@" 7>&- 8>&- 9<&-
)
code=$?
go_on() {
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
    go_on
}
go_on
echo "ended $$ $code" >&8
printf '\033]5379;symphony;%s\033\\' $$
if ! read -r _ <&9; then
    command -p sleep 1
    (command -p sleep 1; kill -CHLD $PPID) &
fi
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What a keeper reports: that its process ``began``, with its id, or ``ended``, with its exit code."""

    what: str
    keeper: int
    value: int


def reports(text: str) -> list[Report]:
    """The reports in whole lines.

    >>> reports("began 12 13")
    [Report(what='began', keeper=12, value=13)]
    """
    words = (line.split() for line in text.splitlines())
    return [Report(what, int(keeper), int(value)) for what, keeper, value in words]


def mark(keeper: int) -> str:
    """What a keeper writes when its process has ended."""
    return _MARK.format(keeper)


def clean(text: str) -> str:
    r"""What a process wrote, of what its window got: a terminal ends lines with ``\r\n``, a keeper leaves its mark.

    >>> clean("one\r\ntwo" + mark(12))
    'one\ntwo'
    """
    return _MARKS.sub("", text).replace("\r\n", "\n")


def is_mark(line: str) -> bool:
    """Whether a line is marks of keepers and nothing else: no line at all."""
    return _MARKS.fullmatch(line) is not None


def last_lines(text: str, count: int) -> str:
    r"""The last lines of a text. They end at newlines alone, as everywhere in logs.

    >>> last_lines("one\ntwo\nthree", 2)
    'two\nthree'
    """
    return "".join(re.findall(r".*\n|.+", text)[-count:]) if count > 0 else ""
