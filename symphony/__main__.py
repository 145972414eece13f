"""The ``symphony`` command, also available as ``python -m symphony``."""

import gc
import sys

# The number of new objects that causes a garbage collection. A short command keeps almost all
# objects that it creates. With Python's default of 700, the collections take 2 ms and find almost
# nothing.
_OBJECTS_BEFORE_COLLECTION = 100_000


def main() -> int:
    """Run ``symphony`` with this process's command-line arguments and return the exit code."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
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
