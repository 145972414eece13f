"""The ``symphony`` command, also available as ``python -m symphony``."""

import sys


def main() -> int:
    """Run ``symphony`` with the arguments of this process and return its exit code."""
    try:
        # Import the program here, so that Ctrl-C during the import is handled as well.
        from symphony.commandline import main as run

        return run()
    except (KeyboardInterrupt, RuntimeError) as exc:
        # Python before 3.12 raises RuntimeError from a KeyboardInterrupt while a class is created.
        if not isinstance(exc.__cause__ or exc, KeyboardInterrupt):
            raise
        sys.stderr.write("symphony: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
