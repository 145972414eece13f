"""Measure how soon `symphony events -f` shows an event.

The peer is `tail -f` on the file in which the supervisor records the events. Both programs follow
the same experiment at the same time. A latency is the time from the time in an event to the moment
at which a follower's output contains the event.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, at_most, main, median
from _sleepers import NAME, environ, symphony, temporary_state_directory

from symphony import Cluster
from symphony.plan.restart_policy import Backoff

WITHIN = 0.05  # The longest allowed latency in seconds.
# The longest allowed latency of the slowest event, which also depends on the load of the machine.
# An event that only a regular check finds, because the follower was not woken up, is later.
ALWAYS_WITHIN = 0.25
RESTART_SECONDS = 0.03
# The number of seconds of silence after which the benchmark gives up.
PATIENCE = 60.0


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    with temporary_state_directory() as state:
        cluster = Cluster.new(
            "local",
            state_dir=state / "local",
            backoff=Backoff(first=RESTART_SECONDS, longest=RESTART_SECONDS),
        )
        exp = cluster.new_experiment(NAME)
        # Each exit and each start is an event.
        exp.new_process("again", command=["sleep", "0.02"]).restart_policy("Always")
        cluster.launch(exp)
        events = state / "local" / NAME / "events.jsonl"
        commands = [
            symphony("events", "-f", "--json", NAME),
            ["tail", "-n", "+1", "-f", str(events)],
        ]
        ours, peer = latencies(commands, state, options.pick(900, 100))
    ratio = median(ours) / median(peer)
    note = f"{ratio:.2f}x tail -f"
    yield at_most("an event: median", "s", ours, WITHIN, peer=peer, peer_name="tail -f", note=note)
    most, peer_most = (sorted(samples)[len(samples) * 99 // 100 - 1] for samples in (ours, peer))
    yield at_most("  99 of 100 events", "s", [most], WITHIN, peer=[peer_most], peer_name="tail -f")
    slowest, peer_slowest = [max(ours)], [max(peer)]
    yield at_most(
        "  slowest event", "s", slowest, ALWAYS_WITHIN, peer=peer_slowest, peer_name="tail -f"
    )


def latencies(commands: Sequence[Sequence[str]], state: Path, count: int) -> list[list[float]]:
    """Return the latencies of ``count`` events for each command.

    Only events that happen after all commands have shown their first event are considered.
    """
    found: list[list[float]] = [[] for _ in commands]
    rest = [b"" for _ in commands]
    begin = 0.0
    with contextlib.ExitStack() as stack:
        followers = [stack.enter_context(_follower(command, state)) for command in commands]
        indices = {descriptor: index for index, descriptor in enumerate(followers)}
        has_output: set[int] = set()
        while min(map(len, found)) < count:
            ready = select.select(followers, [], [], PATIENCE)[0]
            if not ready:
                raise RuntimeError("no more events")
            for descriptor in ready:
                index = indices[descriptor]
                *lines, rest[index] = (rest[index] + os.read(descriptor, 1 << 16)).split(b"\n")
                seen = time.time()
                times = [json.loads(line)["at"] for line in lines]
                found[index] += [seen - at for at in times if begin and at > begin]
                has_output.add(index)
                if not begin and len(has_output) == len(commands):
                    begin = seen
    return [samples[:count] for samples in found]


@contextlib.contextmanager
def _follower(command: Sequence[str], state: Path) -> Iterator[int]:
    """Run a command, and yield the descriptor of its output."""
    process = subprocess.Popen(command, env=environ(state), stdout=subprocess.PIPE)
    try:
        yield process.stdout.fileno() if process.stdout else -1
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main(__doc__ or "", measure)
