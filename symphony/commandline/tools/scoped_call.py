"""The program that runs one command of ``symphony`` within a scope.

Its first argument is the scope as JSON, and the others are the command line. `calls` starts it.
"""

from __future__ import annotations

import json
import sys

from symphony.support.ignored_interrupts import raise_ignored_interrupts


def main() -> int:
    """Run the command of this process's arguments, and return the exit code."""
    raise_ignored_interrupts()
    from symphony.cluster.backend.scope import Scope, limit_clusters
    from symphony.commandline.parser import SymphonyParser

    scope = Scope(**json.loads(sys.argv[1]))
    if scope != Scope():
        limit_clusters(scope)
    return SymphonyParser(prog="symphony").run(sys.argv[2:])
