"""The ``symphony`` command, also available as ``python -m symphony``."""

import sys


def main() -> int:
    """Run ``symphony`` with the arguments of this process and return its exit code."""
    try:
        # Import the program inside the function, so that Ctrl-C during the import is also handled.
        from symphony.commandline import main as run

        return run()
    except (KeyboardInterrupt, RuntimeError) as exc:
        # Before version 3.12, Python converts a KeyboardInterrupt that occurs while a class is
        # created to a RuntimeError.
        if not isinstance(exc.__cause__ or exc, KeyboardInterrupt):
            raise
        sys.stderr.write("symphony: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
