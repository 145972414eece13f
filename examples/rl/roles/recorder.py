"""Collects the numbers of everybody, hands them to the page, and keeps them in a file where there is a folder."""

from __future__ import annotations

import contextlib
import json

from roles import options
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull


class Means:
    """By series and step the mean of what was measured, be it by one or by several."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], tuple[float, int]] = {}

    def add(self, series: str, step: int, value: float) -> float:
        """Take a number in; the mean with it."""
        total, count = self._sums.get((series, step), (0.0, 0))
        self._sums[series, step] = total + value, count + 1
        return (total + value) / (count + 1)


def main() -> None:
    results = options.read().results
    means = Means()
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(ZmqPull(service="metrics", serializer="json"))
        file = None
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((results / "metrics.jsonl").open("a"))
        member = stack.enter_context(Member("server"))
        for number in messages(metrics, member):
            mean = means.add(number["series"], number["step"], number["value"])
            if file is not None:  # first: what the page shows is in the file
                file.write(f"{json.dumps(number)}\n")
                file.flush()
            member.send(
                "screen",
                {"series": number["series"], "step": number["step"], "value": round(mean, 3)},
            )


if __name__ == "__main__":
    main()
