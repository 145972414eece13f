"""The command line: ``symphony``, and the class that a project's own script is made of.

Only here is anything printed, asked or exited. What a verb needs is imported when that verb runs.
"""

from __future__ import annotations

import sys

from symphony.commandline.parser import SymphonyParser

__all__ = ["SymphonyParser", "main"]


def main() -> int:
    """Run ``symphony`` with the arguments of this process; its exit code."""
    return SymphonyParser(prog="symphony").run(sys.argv[1:])
