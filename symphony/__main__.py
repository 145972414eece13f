"""The ``symphony`` command, also available as ``python -m symphony``."""

# This must come first, because it determines which modules are imported from now on.
from symphony.support.import_path import use_own_import_path

use_own_import_path()

import atexit  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

# The number of new objects that causes a garbage collection. A short command keeps almost all
# objects that it creates, so the collections find almost nothing. With Python's default of 700,
# they take 2 ms, and 35 ms if a command reads the 150,000 objects of a list of 1,000 Pods.
_OBJECTS_BEFORE_COLLECTION = 300_000

# How long a thread that continues, for example because a server has answered, waits for a thread
# that imports modules. Python's default of 5 ms delays a connection by 20 ms.
_SWITCH_SECONDS = 0.0005


def main() -> int:
    """Run ``symphony`` with this process's command-line arguments and return the exit code."""
    if os.getpid() == 1:
        from symphony.support.first_process import run_below_first_process

        return run_below_first_process(_run)
    return _run()


def _run() -> int:
    from symphony.support.ignored_interrupts import raise_ignored_interrupts

    raise_ignored_interrupts()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # At exit, Python searches all objects for garbage, although the exit releases all memory. After
    # a list of 1,000 Pods, these searches take 30 ms. They omit frozen objects.
    atexit.register(gc.freeze)
    try:
        # Import the program inside the function, so that Ctrl-C during the import is also handled.
        from symphony.commandline import main as run

        return run()
    except (KeyboardInterrupt, RuntimeError) as exc:
        # Before version 3.12, Python turns a KeyboardInterrupt that occurs during the creation of a
        # class into a RuntimeError.
        if not isinstance(exc.__cause__ or exc, KeyboardInterrupt):
            raise
        sys.stderr.write("symphony: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
