"""Programs that are restarted in place when changed files of their code are sent. Pure.

With ``sync``, a shell starts the program, and starts it again after it has installed an update,
which is an archive that `symphony.code.delta` has written. The containers of processes with
``sync`` do not share the volume with their code, so no program runs while its files are replaced.
See docs/adr/0011-restarts-in-place.md.
"""

from __future__ import annotations

from symphony.code.delta import CODE, REMOVED
from symphony.plan.plan import PlannedProcess
from symphony_kube.render.container_scripts import FIRST_PROCESS_MARK, SHELL, script
from symphony_kube.render.file_objects.code_volumes import TARGET_PATH
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.text import Object, escape

_UPDATE = "update.tar.gz"
# The file with the process ID of the program.
_PROGRAM = "program"
# "$1" is the directory of the volume with the code. The other arguments are the command.
#
# The script "stop" sends the signal to the program. Kubernetes then sends TERM to this shell,
# which passes signals on. A signal interrupts `wait`, after which some shells no longer know the
# program (127). The update is installed again if the container was killed while it was being
# installed. With setsid, processes that the program has left behind do not run the earlier code any
# longer. On a terminal, the program would lose the terminal.
START_SCRIPT = f"""\
{FIRST_PROCESS_MARK}
directory=$1; shift
program=; stopping=; interrupted=
forward() {{
    interrupted=yes
    [ -z "$program" ] || kill -"$1" "$program" 2>/dev/null
}}
for name in HUP INT QUIT USR1 USR2; do trap "forward $name" "$name"; done
trap 'stopping=yes; forward TERM' TERM
install() (
    set -e
    cd "$directory"
    gzip -dc {_UPDATE} >update.tar
    tar -xof update.tar {REMOVED}
    while IFS= read -r name; do rm -rf "{CODE}/$name"; done <{REMOVED}
    tar -xof update.tar
    rm -f update.tar {REMOVED} {_UPDATE}
)
await() {{
    code=
    while :; do
        interrupted=
        wait "$program"
        found=$?
        [ "$found" = 127 ] && [ -n "$code" ] || code=$found
        [ -n "$interrupted" ] || return 0
    done
}}
{script("end")}
session=
[ -t 0 ] || ! command -v setsid >/dev/null || session=setsid
# Some shells report the end of a program by a signal.
exec 3<&0 4>&2 2>/dev/null
while :; do
    if [ -f "$directory/{_UPDATE}" ]; then
        install || {{ echo "the changed code cannot be installed" >&4; exit 1; }}
    fi
    [ -z "$stopping" ] || exit 143
    $session "$@" <&3 2>&4 3<&- 4>&- &
    program=$!
    echo "$program" >"$directory/{_PROGRAM}"
    await
    [ -z "$session" ] || kill -KILL -"$program" 2>/dev/null
    program=
    [ -f "$directory/{_UPDATE}" ] && [ -z "$stopping" ] || end
done
"""
# This script runs in a container that runs the script above. "$1" is the directory of the volume,
# "$2" the size of the update, which gets its name only when it is complete, and "$3" the grace
# period of the program in seconds. The other arguments are the command that stops the program, as
# at the end of the container. The script exits when the program has been started again.
RESTART_SCRIPT = f"""\
cd "$1" || exit 1
incoming=.incoming.$$
trap 'rm -f "$incoming"' EXIT
trap 'exit 1' HUP INT TERM PIPE
head -c "$2" >"$incoming"
[ "$(wc -c <"$incoming")" -eq "$2" ] && gzip -t <"$incoming" || {{
    echo "it is incomplete" >&2
    exit 1
}}
read -r program <{_PROGRAM} || exit 1
mv "$incoming" {_UPDATE}
pause() {{ sleep 0.05 2>/dev/null || sleep 1; }}
end=$(($(date +%s) + $3))
shift 3
SYMPHONY_RESTARTS=yes "$@" </dev/null >/dev/null 2>&1 &
while kill -0 "$program" 2>/dev/null; do
    [ "$(date +%s)" -lt "$end" ] || kill -KILL "$program" 2>/dev/null
    pause
done
while [ -f {_UPDATE} ] || ! read -r next <{_PROGRAM} || [ "$next" = "$program" ]; do pause; done
"""


def restarts_in_place(process: PlannedProcess, options: RenderOptions) -> bool:
    """Return whether changed code is sent to the running container of a process."""
    syncs = process.code is not None and process.code.sync
    return syncs and obstacle(process, options) is None


def obstacle(process: PlannedProcess, options: RenderOptions) -> str | None:
    """Return why a process with ``sync`` cannot be restarted in place, or None."""
    if process.settings.rank_of is not None:
        return "ranks are restarted together"
    if options.code_image is not None:
        return "code_image unpacks its code, so its own image may have no shell and no tar"
    if not process.command and process.cmds is None:
        return "a shell does not know the entry point of its image: set command, cmd or cmds"
    return None


def with_restarts_in_place(fields: Object) -> Object:
    """Return the fields of a container whose program is started by the shell."""
    words = [*fields["command"], *fields.get("args", ())]
    rest = {key: value for key, value in fields.items() if key not in ("command", "args")}
    start = [SHELL, "-c", escape(START_SCRIPT), SHELL, TARGET_PATH]
    return {**rest, "command": [*start, *words]}
