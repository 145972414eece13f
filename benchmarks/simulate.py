"""Measure how many histories `scripts/simulate` runs per second on one core.

The histories are those of a fixed seed. The time is that of the processor, so that other programs
on the machine matter less.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _pairs import Figure, Options, main, median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from simulate.runner import run_seeds

GOAL = 3000.0


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count = options.pick(1000, 200)
    run_seeds(range(100))
    rates: list[float] = []
    decisions = 0
    for number in range(options.pick(7, 3)):
        begin = time.process_time()
        results = run_seeds(range(number * count, (number + 1) * count))
        rates.append(results.histories / (time.process_time() - begin))
        decisions += results.steps
    yield Figure(
        what="histories per second of one core",
        unit="",
        ours=rates,
        result=f"{median(rates):,.0f}",
        target=f">= {GOAL:,.0f}",
        holds=median(rates) >= GOAL,
        note=f"{decisions / (count * len(rates)):.0f} decisions in each",
    )


if __name__ == "__main__":
    main(__doc__, measure)
