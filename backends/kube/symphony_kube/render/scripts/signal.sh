# Send the signal $1 to the program of a container. If no process handles the signal and it would end
# the program, the exit code is 3. With "all" as $2, all processes receive the signal in this case,
# with "check" it is not sent, and with "every" all processes receive it in any case.
signal=$1 mode=$2 root=
exec 3>&2 2>/dev/null
#include find_programs.sh
scan
programs=
for p in $tree; do [ "$p" = "$own" ] || programs="$programs $p"; done
[ "$mode" != every ] || targets=$programs
if [ -z "$targets" ]; then
  for p in $programs; do
    eval "x=\$ignores_$p"
    [ -n "$x" ] || [ "$mode" = all ] || exit 3
  done
  targets=$programs
fi
[ "$mode" = check ] || kill -"$signal" $targets 2>&3
