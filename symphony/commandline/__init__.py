"""The ``symphony`` command line, and the base class for a project's own command line.

This package is the only part of symphony that prints, prompts and exits. Each command imports the
modules that it needs when it runs.
"""

from __future__ import annotations

import sys

from symphony.commandline.parser import SymphonyParser

__all__ = ["SymphonyParser", "main"]


def main() -> int:
    """Run ``symphony`` with the arguments of this process and return the exit code."""
    return SymphonyParser(prog="symphony").run(sys.argv[1:])
