# symphony: first process
# Run a command and exit with its exit code. This process remains when the command exits while the
# container is being stopped, so that the processes that the command has left behind can exit, too.
# Some shells report the end of a program by a signal on their standard error.
trap : HUP INT QUIT
trap 'code=$?; [ -n "$started" ] || code=143; end' TERM
exec 4>&2 2>/dev/null
#include end.sh
started=yes
(exec "$@" 2>&4 4>&-)
code=$?
end
