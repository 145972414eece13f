"""Collect the measurements from all processes, and send their means to the page. If there is a
results directory, also write each measurement to a file.
"""

from __future__ import annotations

import contextlib
import json

from roles import checks
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull


class Means:
    """The mean of the measurements for each series and step, over all processes."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], tuple[float, int]] = {}

    def add(self, series: str, step: int, value: float) -> float:
        """Add ``value``, and return the new mean for ``series`` and ``step``."""
        total, count = self._sums.get((series, step), (0.0, 0))
        self._sums[series, step] = total + value, count + 1
        return (total + value) / (count + 1)


def main() -> None:
    member = Member()
    results = member.options.results
    means = Means()
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(ZmqPull(service="metrics", serializer="json"))
        file = None
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((results / "metrics.jsonl").open("a"))
        for number in messages(metrics, checks.point):
            mean = means.add(number["series"], number["step"], number["value"])
            # The file is written first, so that everything on the page is also in the file.
            if file is not None:
                file.write(f"{json.dumps(number)}\n")
                file.flush()
            member.send(
                "screen",
                {"series": number["series"], "step": number["step"], "value": round(mean, 3)},
            )


if __name__ == "__main__":
    main()
