"""Run many histories, on several cores if that is wanted, and add up what they have covered."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from simulate.coverage import Counts
from simulate.draw import draw_scenario
from simulate.history import run_history

# How many histories one call of a worker runs.
_CHUNK = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that broke a promise."""

    seed: int
    promise: str
    message: str


@dataclass(slots=True)
class Results:
    """What a number of histories has shown.

    ``steps`` is the number of decisions, ``actions`` counts the executed actions by their kind,
    ``events`` the recorded events, and ``promises`` how often each promise was checked.
    """

    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    actions: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    promises: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Results) -> None:
        """Add the results of other histories."""
        self.histories += other.histories
        self.steps += other.steps
        self.actions.update(other.actions)
        self.events.update(other.events)
        self.promises.update(other.promises)
        self.failures += other.failures

    @property
    def rate(self) -> float:
        """The number of histories per second."""
        return self.histories / self.seconds if self.seconds else 0.0


def run_seeds(seeds: range, max_failures: int = 1) -> Results:
    """Run the histories of some seeds, up to a number of failures."""
    results = Results()
    counts = Counts(results.actions, results.events, results.promises)
    # A finished history contains no cycles of references, so looking for some only costs time.
    gc.disable()
    for seed in seeds:
        outcome = run_history(draw_scenario(seed), counts=counts)
        results.histories += 1
        results.steps += outcome.steps
        if outcome.broken is not None:
            results.failures.append(Failure(seed, outcome.broken.promise, str(outcome.broken)))
            if len(results.failures) >= max_failures:
                break
    gc.enable()
    return results


def run_histories(
    first_seed: int,
    *,
    histories: int | None,
    seconds: float | None,
    jobs: int = 1,
    on_progress: Callable[[Results], None] = lambda _: None,
    max_failures: int = 1,
) -> Results:
    """Run the histories of consecutive seeds.

    The run ends after ``histories`` histories, after ``seconds`` seconds, or after
    ``max_failures`` failures. ``jobs`` processes run histories at the same time.
    """
    began = time.monotonic()
    results = Results()
    chunks = _chunks(first_seed, histories)
    for part in _run_chunks(chunks, jobs, max_failures):
        results.add(part)
        results.seconds = time.monotonic() - began
        on_progress(results)
        is_late = seconds is not None and results.seconds >= seconds
        if is_late or len(results.failures) >= max_failures:
            break
    results.failures.sort(key=lambda failure: failure.seed)
    return results


def _chunks(first_seed: int, histories: int | None) -> Iterator[range]:
    seed = first_seed
    end = None if histories is None else first_seed + histories
    while end is None or seed < end:
        stop = seed + _CHUNK if end is None else min(seed + _CHUNK, end)
        yield range(seed, stop)
        seed = stop


def _run_chunks(chunks: Iterator[range], jobs: int, max_failures: int) -> Iterator[Results]:
    if jobs == 1:
        for seeds in chunks:
            yield run_seeds(seeds, max_failures)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        # `imap` would read all chunks in advance, and there can be no end of them.
        first = itertools.islice(chunks, 2 * jobs)
        waiting = [pool.apply_async(run_seeds, (seeds, max_failures)) for seeds in first]
        while waiting:
            yield waiting.pop(0).get()
            following = next(chunks, None)
            if following is not None:
                waiting.append(pool.apply_async(run_seeds, (following, max_failures)))


def default_jobs() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
