"""Write the log lines from all processes to standard output, and to a file if there is a results
directory.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from roles import checks, options
from roles.member import messages
from symphony.addons.zmq import ZmqReceiver


def main() -> None:
    results = options.read().results
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(ZmqReceiver(service="log", serializer="json"))
        outputs: list[TextIO] = []
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            outputs.append(stack.enter_context((results / "run.log").open("a")))
        # Write to standard output last, so that each line there is already in the file.
        outputs.append(sys.stdout)
        for line in messages(lines, checks.line):
            for output in outputs:
                print(f"{line['name']}: {line['text']}", file=output, flush=True)


if __name__ == "__main__":
    main()
