"""The supervisor program and its guardian: ``python -I -S __main__.py EXPERIMENT``.

Its standard input is a socket that is connected to the launcher. The first line from the socket
contains the path of the run directory in hexadecimal form, the launcher's import path and the name
of the class that starts processes. The program detaches itself from the launcher. It becomes the
guardian, which forks the supervisor. The supervisor imports its modules while the launcher is still
preparing the launch. Then it receives its orders, renames the run directory to its final name,
starts the processes, reports the result of the launch through a pipe, and supervises the processes.

If the guardian is killed, the supervisor starts this program with further arguments, which are the
guardian's ends of two pipes. The first line of its standard input is the same.

The program is started by path and without ``site``, so that it uses exactly the launcher's import
path.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Detach from the launcher, guard a supervisor, and run the supervisor in a child."""
    # The launcher sends file descriptors after the first line. Unbuffered reading leaves these
    # descriptors in the socket.
    with os.fdopen(0, "rb", buffering=0, closefd=False) as channel:
        line = channel.readline()
    if not line.endswith(b"\n"):
        # The program that has started this one was killed before it had sent the line.
        os._exit(1)
    if os.fork():
        os._exit(0)
    # The line contains the launcher's import path, but the guardian has no module that decodes it.
    sys.path.append(__file__.rpartition(os.sep)[0])
    import guardian  # type: ignore[import-not-found]

    encoded_path, _, text = line.partition(b" ")
    path = os.fsdecode(bytes.fromhex(encoded_path.decode()))
    if len(sys.argv) > 2:
        alive, messages = map(int, sys.argv[2:])
        link = guardian.guard_running(path, guardian.Link(alive, messages))
    else:
        link = guardian.guard_first(path)
    _supervise(text, link.alive, link.messages, link.path)


def _supervise(text: bytes, alive: int, messages: int, path: str) -> None:
    """Adopt the launcher's import path, and run the supervisor.

    The other arguments are those of `symphony.supervised.supervisor.guardian.Link`.
    """
    import atexit
    import gc
    import json

    # The imports and a launch create only objects that remain. The search for garbage would visit
    # them again and again.
    gc.disable()
    preparation = json.loads(text)
    sys.path[:] = preparation["path"]
    # Python calls this function after all other exit functions. Otherwise, it would remove each
    # object before it exits, which takes time in proportion to the number of processes.
    atexit.register(os._exit, 0)
    from symphony.support.inherited_signals import reset_signals

    # The launcher may have been started with blocked or ignored signals. The supervisor must
    # receive its signals, and so must the processes that it starts.
    reset_signals()
    from symphony.supervised.supervisor.guarding import Guard
    from symphony.supervised.supervisor.handover import continue_run, run_supervisor

    guard = Guard(preparation, alive, messages, path)
    if path:
        continue_run(preparation, guard)
    else:
        run_supervisor(preparation, guard)


if __name__ == "__main__":
    main()
