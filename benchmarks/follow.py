"""Measure how soon `symphony logs -f` shows a line, and whether it keeps up with the writer.

The peer is `tail -f` on the log file.

A process in an experiment writes the machine's monotonic clock time into each line. The benchmark
reads the output of a follower from a pipe and compares the time in each line with the same clock.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, at_most, in_turns, main
from _sleepers import NAME, environ, experiment, local, symphony, temporary_state_directory

WITHIN = 0.05  # The longest allowed time from writing a line to showing it, in seconds.
RATE = 100_000  # The required rate in lines per second.
# The number of seconds of silence after which the benchmark stops waiting for a follower.
PATIENCE = 60.0

# The intervals are uneven, so that the writer does not run in step with a follower that polls.
STAMPS = """
import random, time
while True:
    print("stamp", time.monotonic_ns(), flush=True)
    time.sleep(random.uniform(0.005, 0.025))
"""
# This program waits until the benchmark creates a file, which means that the follower is ready. The
# program then writes a burst of lines every 5 ms. The last line contains the times at which writing
# began and ended.
FLOOD = """
import pathlib, sys, time
rate, seconds, go = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.01)
begin, done, portion = time.monotonic(), 0, rate // 200
while done < rate * seconds:
    time.sleep(max(0.0, begin + done / rate - time.monotonic()))
    print("\\n".join(f"line {number}" for number in range(done, done + portion)), flush=True)
    done += portion
print("end", begin, time.monotonic(), flush=True)
"""

Command = list[str]


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    lines = options.pick(100, 40)
    yield from latency(1, lines, options.pick(4, 1))
    yield from latency(options.pick(500, 50), lines, options.pick(2, 1))
    yield from flood(options.pick(5, 1), options.pick(3, 1))


def latency(count: int, lines: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for the time from writing a line to showing it.

    One of ``count`` processes writes. symphony follows all processes, and tail follows the writer.
    """
    with temporary_state_directory() as state:
        exp = experiment(count - 1)
        exp.new_process("writer", command=[sys.executable, "-c", STAMPS])
        local(state).launch(exp)
        ours: list[float] = []
        peer: list[float] = []
        for _ in range(rounds):
            for samples, command in ((ours, symphony("logs", "-f", NAME)), (peer, tail(state))):
                with Follower(command, state) as follower:
                    samples += latencies(follower, lines)
    most, peer_most = (sorted(samples)[len(samples) * 99 // 100 - 1] for samples in (ours, peer))
    rows: list[tuple[str, Sequence[float], Sequence[float], float | None]] = [
        (f"a line of 1 among {count} followed: median", ours, peer, WITHIN),
        ("  99 of 100 lines", [most], [peer_most], WITHIN),
        (f"  the slowest of {len(ours)}", [max(ours)], [max(peer)], None),
    ]
    for what, mine, others, limit in rows:
        yield at_most(what, "s", mine, limit, peer=others, peer_name="tail -f")


def latencies(follower: Follower, count: int) -> list[float]:
    """Return the latencies of ``count`` lines that are written after the follower shows its
    first line.
    """
    begin = 0
    found: list[float] = []
    for line in follower.lines():
        seen = time.monotonic_ns()
        words = line.split()
        if b"stamp" not in words:
            continue
        begin = begin or seen
        if int(words[-1]) > begin:
            found.append((seen - int(words[-1])) / 1e9)
        if len(found) == count:
            break
    return found


def flood(seconds: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for the number of lost lines and the delay of the last line."""
    with temporary_state_directory() as state:
        rates: list[float] = []
        sides = [
            lambda: flooded(state, symphony("logs", "-f", NAME), seconds, lost_ours, rates),
            lambda: flooded(state, tail(state), seconds, lost_peer, rates),
        ]
        lost_ours: list[float] = []
        lost_peer: list[float] = []
        ours, peer = in_turns(rounds, *sides)
    note = f"written at {min(rates):,.0f} to {max(rates):,.0f} lines a second"
    what = f"{RATE:,} lines a second for {seconds} s: lost"
    yield at_most(
        what, "lines", [sum(lost_ours)], 0, peer=[sum(lost_peer)], peer_name="tail -f", note=note
    )
    yield at_most(
        "  the last line was shown after", "s", ours, None, peer=peer, peer_name="tail -f"
    )


def flooded(
    state: Path, command: Command, seconds: int, lost: list[float], rates: list[float]
) -> float:
    """Return the time between writing and showing the last line.

    Append the number of lost lines to ``lost``, and the write rate to ``rates``.
    """
    go = state / "go"
    exp = experiment(0)
    exp.new_process(
        "writer", command=[sys.executable, "-c", FLOOD, str(RATE), str(seconds), str(go)]
    )
    cluster = local(state)
    cluster.launch(exp)
    try:
        with Follower(command, state) as follower:
            lines = follower.lines()
            next(lines)
            go.touch()
            lines = [line for portion in follower.until(b"end ") for line in portion]
            end = time.monotonic()
    finally:
        cluster.delete(NAME)
        with contextlib.suppress(FileNotFoundError):
            go.unlink()
    _, written_begin, written_end = lines[-1].split()[-3:]
    numbers = [int(line.split()[-1]) for line in lines[:-1]]
    expected = RATE * seconds
    lost.append(expected - len(set(numbers)) if numbers == sorted(set(numbers)) else expected)
    rates.append(expected / (float(written_end) - float(written_begin)))
    return end - float(written_end)


def tail(state: Path) -> Command:
    """Return the peer's command, which follows the writer's log."""
    return ["tail", "-n", "+1", "-f", str(state / "local" / NAME / "logs" / "writer.log")]


class Follower:
    """A program that follows a log, and its output."""

    def __init__(self, command: Command, state: Path) -> None:
        self._process = subprocess.Popen(command, env=environ(state), stdout=subprocess.PIPE)
        self._output = self._process.stdout.fileno() if self._process.stdout else -1
        self._rest = b""

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def lines(self) -> Iterator[bytes]:
        """Yield each line as it arrives."""
        for portion in self._portions():
            yield from portion

    def until(self, begin: bytes) -> Iterator[list[bytes]]:
        """Yield lists of lines, up to and including one whose last line begins with ``begin``."""
        for portion in self._portions():
            yield portion
            if portion and portion[-1].startswith(begin):
                return

    def _portions(self) -> Iterator[list[bytes]]:
        while select.select([self._output], [], [], PATIENCE)[0]:
            data = os.read(self._output, 1 << 20)
            if not data:
                break
            *whole, self._rest = (self._rest + data).split(b"\n")
            yield whole
        raise RuntimeError(f"no more output from: {' '.join(self._process.args)}")  # type: ignore[arg-type]


if __name__ == "__main__":
    main(__doc__, measure)
