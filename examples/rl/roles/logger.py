"""Collects the lines of everybody: in its own output, and in a file if there is a folder for what is to stay."""

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
        outputs.append(sys.stdout)  # the last: who sees a line there finds it in the file
        member = stack.enter_context(Member("collector"))
        for line in messages(lines, member):
            for output in outputs:
                print(f"{line['name']}: {line['text']}", file=output, flush=True)


if __name__ == "__main__":
    main()
