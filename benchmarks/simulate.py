"""Measure how many histories `scripts/simulate` runs per second on one core.

The histories are those of fixed seeds. The small ones have at most 5 processes and 30 decisions.
The time is that of the processor, so that other programs on the machine matter less. The compiled
form is measured in turns with plain Python, each in an interpreter of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _pairs import Figure, Options, in_turns, main, median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from simulate import compiled

GOAL = 3000.0
MOST_PROCESSES, MOST_DECISIONS = 5, 30


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count, runs = options.pick(1000, 200), options.pick(8, 2)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as plain, context.Pool(1, compiled.use) as fast:
        small = plain.apply(_small_seeds, (count,))
        for what, seeds in (("small histories", small), ("histories", list(range(count)))):
            ours, peer = in_turns(
                runs,
                lambda seeds=seeds: fast.apply(_rate, (seeds,)),
                lambda seeds=seeds: plain.apply(_rate, (seeds,)),
            )
            yield Figure(
                what=f"{what} per second of one core",
                unit="",
                ours=ours,
                peer=peer,
                peer_name="plain Python",
                result=f"{median(ours):,.0f}, {median(ours) / median(peer):.1f}x",
                target=f">= {GOAL:,.0f}" if seeds is small else "",
                holds=median(ours) >= GOAL if seeds is small else None,
                note=plain.apply(_note, (seeds,)),
            )


# These functions run in the interpreters that are measured. They import the modules there.


def _outcomes(seeds: Sequence[int]) -> list[tuple[int, Any, Any]]:
    from simulate.draw import draw_scenario
    from simulate.history import run_history

    found = []
    for seed in seeds:
        scenario = draw_scenario(seed)
        found.append((seed, scenario, run_history(scenario)))
    return found


def _small_seeds(count: int) -> list[int]:
    """Return the seeds of as many small histories."""
    seeds: list[int] = []
    first = 0
    while len(seeds) < count:
        for seed, scenario, outcome in _outcomes(range(first, first + count)):
            if len(scenario.processes) <= MOST_PROCESSES and outcome.steps <= MOST_DECISIONS:
                seeds.append(seed)
        first += count
    return seeds[:count]


def _rate(seeds: Sequence[int]) -> float:
    """Return how many histories run per second."""
    from simulate.draw import draw_scenario
    from simulate.history import run_history

    gc.disable()
    begin = time.process_time()
    for seed in seeds:
        run_history(draw_scenario(seed))
    seconds = time.process_time() - begin
    gc.enable()
    return len(seeds) / seconds


def _note(seeds: Sequence[int]) -> str:
    processes = decisions = 0
    for _, scenario, outcome in _outcomes(seeds):
        processes += len(scenario.processes)
        decisions += outcome.steps
    count = len(seeds)
    return f"{processes / count:.1f} processes and {decisions / count:.0f} decisions in each"


if __name__ == "__main__":
    main(__doc__, measure)
