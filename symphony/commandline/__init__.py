"""The ``symphony`` command line, and the base class for the command lines of other projects.

Only this package prompts the user and determines the exit code of ``symphony``. It also prints
almost all output. When a command runs, it imports the modules that it needs.
"""

from __future__ import annotations

import sys

from symphony.commandline.parser import SymphonyParser

__all__ = ["SymphonyParser", "main"]


def main() -> int:
    """Run ``symphony`` with this process's command-line arguments and return the exit code."""
    return SymphonyParser(prog="symphony").run(sys.argv[1:])
