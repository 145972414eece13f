"""Collects the lines of everybody: in its own output, and in a file if there is a folder for what is to stay."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from roles import options
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull


def main() -> None:
    results = options.read().results
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(ZmqPull(service="log", serializer="json"))
        outputs: list[TextIO] = [sys.stdout]
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            outputs.append(stack.enter_context((results / "run.log").open("a")))
        member = stack.enter_context(Member("server"))
        for line in messages(lines, member):
            for output in outputs:
                print(f"{line['name']}: {line['text']}", file=output, flush=True)


if __name__ == "__main__":
    main()
