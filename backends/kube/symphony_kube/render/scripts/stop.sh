# symphony: stop
# Stop the program of a container. $1 is the number of the signal. When $2 hundredths of a second
# have passed, the processes below those that still run receive it, too. $3 is a process that is
# stopped with its descendants instead of the program, or nothing. $4 contains "group" if all
# processes receive the signal at once, "report" if the termination message of the container says
# that Kubernetes has stopped it, and "failure" if the exit code must then not be 0. The other
# arguments are a command that stops the program instead of the signal.
#
# Kubernetes runs this script before it sends TERM to the first process of the container. If the
# first process exits, Kubernetes kills all others. Therefore, it is stopped like a shell above a
# program, and continues when the others have exited, unless it is the program. It continues only
# when this script has exited, because Kubernetes reports a script that was killed.
signal=$1 late=$2 root=$3 group= message=
case $4 in *group*) group=yes ;; esac
case $4 in *report*) message="symphony: stopped by Kubernetes" ;; esac
case $4 in *failure*) message="$message; exit code 0 becomes 143" ;; esac
shift 4
exec 3>&2 2>/dev/null
#include find_programs.sh
frozen= told= is_late= is_alone=

clock() {
  read -r now x </proc/uptime
  now=${now%.*}${now#*.}
  now=${now#0}
  now=${now#0}
}

pause() { sleep 0.05 || sleep 1; }

without() {
  rest=
  for p in $1; do
    case " $2 " in *" $p "*) ;; *) rest="$rest $p" ;; esac
  done
}

have_exited() {
  for p in $1; do
    read -r x <"/proc/$p/stat" || continue
    case ${x##*) } in [ZX]*) ;; *) return 1 ;; esac
  done
}

# Stop the processes above the targets. They can have started other processes in the meantime.
freeze_above() {
  while without "$above $own" "$frozen" && [ -n "$rest" ]; do
    kill -STOP $rest
    frozen="$frozen $rest"
    scan
  done
}

# A process that ignores the signal and is above others would go on when these have exited.
send() {
  for p in $2; do
    told="$told $p"
    eval "x=\${ignores_$p-}"
    case "$x $frozen " in
    "yes"*" $p "*) kill -KILL "$p" ;;
    yes*) kill -TERM "$p" ;;
    *) kill -"$1" "$p" ;;
    esac
    kill -CONT "$p"
  done
}

# A shell that waits for a suspended program would not run its trap.
resume() {
  without "$tree" "$frozen"
  kill -CONT $rest
}

# Let this script exit, and call a function in the background, which keeps none of its files.
leave() {
  [ -z "$is_alone" ] || return 0
  is_alone=yes
  # Redirections of the function itself would keep copies of the pipes of the hook open in dash, and
  # the node waits until they are closed.
  (exec </dev/null >/dev/null 3>&1 && "$@") &
  exit 0
}

# Some programs wait for the exit of others without passing the signal on.
check_time() {
  clock
  [ -z "$is_late" ] && [ "$now" -ge "$late" ] || return 0
  is_late=yes
  scan
  found=
  without "$tree" "$told $frozen"
  for p in $rest; do
    q=$p
    while eval "q=\${parent_$q-}" && [ -n "$q" ]; do
      case " $asked " in *" $q "*) found="$found $p" ;; esac
    done
  done
  send "$signal" "$found"
  leave finish
}

# Wait for the processes that were asked to exit, and ask those that remain. The readers of pipes
# exit when they have read the last output.
finish() {
  resume
  while :; do
    until have_exited "$asked"; do
      pause
      check_time
    done
    scan
    [ -n "$targets" ] || break
    freeze_above
    asked=$targets
    send "$signal" "$asked"
  done
  clock
  end=$((now + 30))
  while without "$tree" "$frozen $main" && [ -n "$rest" ] && [ "$now" -lt "$end" ]; do
    pause
    clock
    scan
  done
  while without "$tree" "$main" && [ -n "$rest" ]; do
    asked=$rest
    without "$tree" "$told $main"
    send 15 "$rest"
    pause
    check_time
    scan
  done
  leave release 15
  release 15
}

# The scripts that are first processes exit with the code of the program when they have received
# TERM, unless they start the program again.
release() {
  [ -n "$root" ] || { pause; pause; }
  if [ -z "$own" ]; then
    send "$1" "$main"
  elif [ -z "$SYMPHONY_RESTARTS" ]; then
    kill -TERM "$main"
  fi
  kill -CONT "$main"
}

# Run the command, whose output is added to the log of the program.
run() {
  resume
  log=/proc/$main/fd/1
  (: >>"$log") && exec 3>>"$log"
  "$@" </dev/null >&3 2>&3 3>&- &
  command=$!
  until have_exited "$command"; do
    pause
    check_time
  done
  wait "$command"
}

clock
late=$((now + late)) end=$((now + 100))
scan
# Kubernetes runs the script again if the grace period is reduced.
for p in $pids; do
  eval "x=\$parent_$p"
  if [ -z "$root" ] && [ "$x" = "$outside" ] && [ "$p" -lt $$ ] && has_mark "$p" stop; then
    until have_exited "$p"; do pause; done
    exit 0
  fi
done
[ -n "$tree" ] || exit 0
# A program that is started again in place is not at its end.
if [ -n "$message" ] && [ -z "$SYMPHONY_RESTARTS" ] && [ -f /dev/termination-log ]; then
  echo "$message" >>/dev/termination-log
fi
# The program has not been started yet.
while [ "$tree" = " $own" ] && [ "$now" -lt "$end" ]; do
  pause
  clock
  scan
done

if [ -n "$targets" ] && [ -z "$group" ]; then
  freeze_above
  asked=$targets
elif [ -n "$group$*" ]; then
  targets= above=
  without "$tree" "$own"
  asked=$rest
  [ -z "$own" ] || kill -STOP "$own"
  frozen=$own
elif [ "$tree" = " $main" ]; then
  kill -CONT "$main"
  [ -n "$own" ] || [ "$signal" = 15 ] && [ -z "$root" ] || kill -"$signal" "$main"
  exit 0
else
  kill -STOP $tree
  without "$tree" "$main"
  send "$signal" "$rest"
  leave release "$signal"
fi

if [ $# != 0 ] && run "$@"; then
  finish
  exit 0
fi

# Kubernetes sends TERM to the first process of the container when this script has exited.
case " $asked " in
*" $main "*)
  if [ "$signal" = 15 ] && [ -z "$root" ]; then
    kill -CONT "$main"
    told=$main
    without "$asked" "$main"
    send 15 "$rest"
    leave finish
  fi
  ;;
esac
send "$signal" "$asked"
finish
