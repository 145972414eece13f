"""Write the log lines of all processes to standard output, and to a file if there is a directory
for results.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from roles import options
from roles.member import Member, messages
from symphony.addons.zmq import ZmqReceiver


def main() -> None:
    results = options.read().results
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(ZmqReceiver(service="log", serializer="json"))
        outputs: list[TextIO] = []
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            outputs.append(stack.enter_context((results / "run.log").open("a")))
        # Standard output is last, so that a line that is visible on standard output is already in
        # the file.
        outputs.append(sys.stdout)
        member = stack.enter_context(Member("collector"))
        for line in messages(lines, member):
            for output in outputs:
                print(f"{line['name']}: {line['text']}", file=output, flush=True)


if __name__ == "__main__":
    main()
