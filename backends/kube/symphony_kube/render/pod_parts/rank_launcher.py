"""Several ranks in one Pod. Pure.

With ``per_pod``, a container starts several ranks. All of them see all GPUs of the Pod, so that
libraries such as NCCL can use the connections between the GPUs, which containers of their own would
not allow. In a plan for Kubernetes, the first rank of each Pod stands for all of its ranks.
"""

from __future__ import annotations

from dataclasses import replace

from symphony.errors import SpecError
from symphony.plan.plan import Plan, PlannedProcess
from symphony_kube.render.container_scripts import FIRST_PROCESS_MARK, script

# Start the ranks of the Pod. If one of them fails, stop the others, and exit with its code. Every
# image that contains a shell can run this script, whatever language its programs use.
#
# A shell cannot wait for the first of several processes. Therefore, each rank has a shell of its
# own, which writes the process ID and the exit code of the rank to a pipe.
#
# If Kubernetes stops the container, the script "stop" sends the signal to the ranks' programs. If a
# rank fails, the launcher runs it for each other rank. A rank has the default action of TERM
# from its fork on, so that TERM stops it also before it executes the program. The launcher stops a
# rank whose process ID it does not know yet when it receives the process ID. The shells of
# the ranks ignore TERM, so that they report the exit codes.
LAUNCHER = (
    f"{FIRST_PROCESS_MARK}\n"
    + script("end")
    + """
count=$1; grace=$2; script=$3; signal=$4; late=$5; shift 5
directory=$(mktemp -d /dev/shm/ranks.XXXXXX 2>/dev/null || mktemp -d) &&
  mkfifo "$directory/events" && exec 3<>"$directory/events" || exit 126
rm -r "$directory"
if [ -z "${OMP_NUM_THREADS-}" ] && cores=$(nproc 2>/dev/null); then
  OMP_NUM_THREADS=$((cores / count)); [ "$OMP_NUM_THREADS" -gt 0 ] || OMP_NUM_THREADS=1
  export OMP_NUM_THREADS
fi
scratch=${SYMPHONY_SCRATCH_DIR-}; number=0
while [ -n "$scratch" ] && [ "$number" -lt "$count" ]; do
  mkdir -p "$scratch/$number" || exit 126
  number=$((number + 1))
done
trap 'stopping=yes; echo "stop 0 0 0" >&3' TERM INT
first=$RANK; number=0; left=$count; running=' '; stopping=; is_stopped=; failed=0
stop_rank() {
  /bin/sh -c "$script" /bin/sh "$signal" "$late" "$1" '' </dev/null >/dev/null 2>&1 3>&- &
}
stop() {
  [ -z "$is_stopped" ] || return 0
  stopping=yes; is_stopped=yes
  for pid in $running; do stop_rank "$pid"; done
}
while [ "$number" -lt "$count" ]; do
  (
    trap - TERM INT
    RANK=$((first + number)); LOCAL_RANK=$number
    SYMPHONY_RANK=$RANK; SYMPHONY_LOCAL_RANK=$LOCAL_RANK
    export RANK LOCAL_RANK SYMPHONY_RANK SYMPHONY_LOCAL_RANK
    [ -z "$scratch" ] || SYMPHONY_SCRATCH_DIR=$scratch/$number
    # Some shells report the end of a program by a signal.
    exec 4>&2 2>/dev/null
    "$@" 2>&4 3>&- 4>&- &
    trap '' TERM
    echo "started $! $RANK 0" >&3
    wait "$!"
    echo "exited $! $RANK $?" >&3
  ) &
  number=$((number + 1))
done
while [ "$left" -gt 0 ]; do
  read -r event pid rank code <&3 || continue
  case $event in
  started)
    running="$running$pid "
    [ -z "$is_stopped" ] || stop_rank "$pid"
    ;;
  exited)
    running="${running%% $pid *} ${running#* $pid }"
    left=$((left - 1))
    if [ "$failed" = 0 ] && [ "$code" != 0 ]; then
      failed=$code
      [ -n "$stopping" ] || echo "rank $rank exited with $code" >&2
      stop
      ( sleep "$grace"; echo "expired 0 0 0" >&3 ) >/dev/null 2>&1 &
    fi
    ;;
  stop)
    stop
    ;;
  expired)
    for pid in $running; do kill -KILL "$pid" 2>/dev/null; done
    ;;
  esac
done
code=$failed
end
"""
)


def with_shared_pods(plan: Plan) -> Plan:
    """Return a plan in which the first rank of each Pod stands for all ranks of the Pod.

    Raises `SpecError` if ranks of one Pod differ or bind services.
    """
    kept: dict[str, str] = {}
    firsts: dict[str, PlannedProcess] = {}
    ranks: dict[str, int] = {}
    for process in plan:
        unit, per_pod = process.settings.rank_of, process.settings.per_pod or 1
        if unit is None or per_pod == 1:
            continue
        rank = ranks[unit] = ranks.get(unit, -1) + 1
        if rank % per_pod == 0:
            firsts[unit] = process
        _check_rank(process, firsts[unit])
        kept[process.name] = firsts[unit].name
    if not kept:
        return plan
    processes = tuple(
        replace(process, starts_after=_renamed(process.starts_after, kept))
        for process in plan
        if kept.get(process.name, process.name) == process.name
    )
    ends_with = tuple(dict.fromkeys(kept.get(name, name) for name in plan.policies.ends_with))
    return replace(plan, processes=processes, policies=replace(plan.policies, ends_with=ends_with))


def _check_rank(process: PlannedProcess, first: PlannedProcess) -> None:
    settings = process.settings
    if settings.binds or settings.exposes:
        service = next(iter((*settings.binds, *settings.exposes)))
        raise SpecError(
            f"process {process.name!r} binds service {service!r}, but the ranks of a Pod cannot "
            "bind services, because they share its ports; remove per_pod or the service"
        )
    # The first rank alone serves the address at which the ranks meet.
    if replace(process, name=first.name, serves=first.serves) != first:
        raise SpecError(
            f"process {process.name!r} differs from {first.name!r}, with which it shares a Pod; "
            "use the variable RANK instead of ${index}, or remove per_pod"
        )


def _renamed(conditions: dict[str, str], kept: dict[str, str]) -> dict[str, str]:
    return {kept.get(name, name): condition for name, condition in conditions.items()}
