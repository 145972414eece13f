"""The ``symphony`` command line, and the base class for the command lines of other projects.

Only this package prompts the user and determines the exit code of ``symphony``. It also prints
almost all output. When a command runs, it imports the modules that it needs.
"""

from __future__ import annotations

import gc
import sys

from symphony.commandline.parser import SymphonyParser

__all__ = ["SymphonyParser", "main"]

# The number of new objects that causes a garbage collection. A short command keeps almost all
# objects that it creates. With Python's default of 700, the collections take 3 ms and find almost
# nothing.
_OBJECTS_BEFORE_COLLECTION = 20_000


def main() -> int:
    """Run ``symphony`` with this process's command-line arguments and return the exit code."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    return SymphonyParser(prog="symphony").run(sys.argv[1:])
