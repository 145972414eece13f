# Find the processes of a container to which a signal is sent. The caller sets `signal`, and `root`
# if only a process and its descendants are meant. `scan` sets
#
#   tree     all processes of the program, without zombies
#   targets  those that handle the signal and have no ancestor in the tree that handles it
#   above    the ancestors of the targets
#   main     the first process of the container, or `root`
#   own      the same if it is a script of symphony, else nothing
#   outside  the parent of the first process, which is 0 unless the Pod sees the node's processes
#
# A program that blocks a signal waits for it in another way than with a handler.

control_group() {
  g=
  while read -r x; do g=$g$x; done <"/proc/$1/cgroup"
}

# The fields are described in proc(5). The masks contain the signals up to 31.
read_stat() {
  read -r x <"/proc/$1/stat" || return 1
  name=${x#*\(}
  name=${name%\)*}
  set -- ${x##*) }
  state=$1 parent=$2 started=${20} handled=$((${30} | ${32}))
  handles=$((handled >> (signal - 1) & 1)) ignores=
  [ $((${31} >> (signal - 1) & 1)) = 0 ] || ignores=yes
  # While a shell waits for a program, it handles INT and does not pass it on. If it also handles
  # TERM, it has a trap.
  case $signal,$name in
  2,sh | 2,bash | 2,dash | 2,ash | 2,busybox | 2,zsh | 2,ksh)
    [ $((handled >> 14 & 1)) = 1 ] || handles=0
    ;;
  esac
}

has_mark() {
  x=
  read -r x <"/proc/$1/cmdline"
  case $x in *"# symphony: $2" | *"/symphony/scripts/$2"*) return 0 ;; *) return 1 ;; esac
}

# The first process has started before all others that have no parent in the container.
find_main() {
  for p in $pids; do
    eval "x=\$parent_$p"
    eval "x=\${parent_$x-}"
    [ -z "$x" ] || continue
    eval "x=\$started_$p"
    [ -z "$main" ] || [ "$x" -lt "$first" ] || continue
    first=$x main=$p
  done
}

# The containers of a Pod can share a process namespace, but each has a control group. The parent of
# the first process and of the commands that exec runs is not in the container. Processes that have
# lost their parent have another parent, which is the first process of the namespace. A script that
# stops the program can be one of them.
scan() {
  for p in $pids; do unset "parent_$p" "handles_$p"; done
  pids=
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    control_group "$p" && [ "$g" = "$container" ] && read_stat "$p" || continue
    [ "$state" != Z ] || continue
    pids="$pids $p"
    eval "parent_$p=$parent started_$p=$started handles_$p=$handles ignores_$p=$ignores"
  done
  [ -n "$main" ] || find_main
  eval "outside=\${parent_$main-}"
  [ "$outside" = 0 ] || [ -n "$root" ] || exit 1
  own=
  if has_mark "$main" "first process"; then
    own=$main
    eval "handles_$own=0"
  fi
  tree= targets= above=
  for p in $pids; do
    q=$p ancestors= is_below=
    until [ "$q" = "$main" ]; do
      top=$q
      eval "q=\$parent_$q"
      eval "x=\${handles_$q-}"
      [ -n "$x" ] || break
      [ "$x" = 0 ] || is_below=yes
      ancestors="$ancestors $q"
    done
    if [ "$q" != "$main" ]; then
      [ -z "$root" ] && [ "$q" != "$outside" ] && ! has_mark "$top" stop || continue
    fi
    tree="$tree $p"
    eval "x=\$handles_$p"
    [ "$x" = 1 ] && [ -z "$is_below" ] || continue
    targets="$targets $p" above="$above$ancestors"
  done
}

control_group $$
container=$g main=$root pids=
