"""Sampling the resource use of an experiment on this machine until it has finished.

The program that shows the samples takes them itself, so the supervisor has no work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from symphony.errors import NotFound
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import recorded_leaders
from symphony.supervised.record.status import StatusReader
from symphony.supervised.usage.sampler import (
    FIRST_INTERVAL_SECONDS,
    UsageSampler,
    devices_of_processes,
)
from symphony.usage import ExperimentUsage


def follow_usage(
    run: RunDirectory, reader: StatusReader, interval: float
) -> Iterator[ExperimentUsage]:
    """Yield a sample every ``interval`` seconds, until the experiment has finished or was deleted.

    ``run`` is pinned. The first sample comes earlier.
    """
    sampler = UsageSampler(reader.manifest["run_id"])
    # The CPU use is measured between two samples, so the first one is not shown.
    is_shown = False
    due = time.monotonic()
    while run.is_current():
        try:
            state = reader.read_state()
        except NotFound:
            return
        leaders = recorded_leaders(state)
        usage = sampler.sample(leaders, devices_of_processes(reader.manifest["processes"]))
        if state.finished or not (usage.processes or reader.is_supervised()):
            return
        if is_shown:
            yield usage
        pause = interval if is_shown else min(FIRST_INTERVAL_SECONDS, interval)
        is_shown = True
        due += pause
        now = time.monotonic()
        if due < now:
            # A reader that is late does not catch up: the CPU use needs some time between samples.
            due = now + pause
        time.sleep(due - now)
