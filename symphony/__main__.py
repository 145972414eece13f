"""``python -m symphony`` is ``symphony``: the program itself, whose modules are imported where Ctrl-C is caught."""

import sys


def main() -> int:
    """Run ``symphony`` with the arguments of this process; its exit code."""
    try:
        from symphony.commandline import main as run

        return run()
    except (KeyboardInterrupt, RuntimeError) as exc:
        if not isinstance(
            exc.__cause__ or exc, KeyboardInterrupt
        ):  # Python before 3.12 hides one, as a class is made
            raise
        sys.stderr.write("symphony: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
