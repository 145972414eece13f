"""Measure how long `symphony logs` takes for many processes and for a large log.

The peer is `cat` on the log files, or `sort -m` for logs that are merged. The benchmark also
measures the time to the first byte and the maximum memory of both programs. The results for
`symphony` include the start of the interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from _pairs import Figure, Options, at_most, at_most_times, in_turns, main
from _sleepers import NAME, environ, local, symphony, temporary_state_directory

LINES = 20  # The number of lines that each of many processes writes.
READ_BYTES = 1 << 16
READS_PER_MEMORY_SAMPLE = 16
MEBIBYTE_BYTES = 1 << 20
# The program prints a log of the given number of MiB.
WRITE = """
import sys
line = b"x" * 127 + b"\\n"
for _ in range(int(sys.argv[1])):
    sys.stdout.buffer.write(line * 8192)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The cost of reading the output of one command. Durations are in seconds."""

    first_byte: float
    total: float
    memory_mebibytes: float


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    yield from many_processes(options.pick(1000, 100), options.pick(5, 2))
    yield from large_log(options.pick(300, 30), options.pick(5, 2))
    yield from merged_logs(options.pick(5_000_000, 500_000), options.pick(5, 2))


def many_processes(count: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for the logs of ``count`` finished processes."""
    with temporary_state_directory() as state:
        launch(state, count, ["seq", str(LINES)])
        yield from compare(state, f"{count} processes", rounds, total=2.0)


def large_log(mebibytes: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for one log of ``mebibytes`` MiB."""
    with temporary_state_directory() as state:
        launch(state, 1, [sys.executable, "-c", WRITE, str(mebibytes)])
        yield from compare(
            state, f"a log of {mebibytes} MiB", rounds, total=5.0, first_byte=1.0, memory=100.0
        )


def merged_logs(lines: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for two large logs that are written at the same time.

    The peer is `sort -m`, which also merges the files line by line.
    """
    with temporary_state_directory() as state:
        launch(state, 2, ["seq", str(lines)])
        files = sorted(map(str, (state / "local" / NAME / "logs").glob("*.log")))
        ours: list[Reading] = []
        peer: list[Reading] = []
        peer_command = ["sort", "-m", *files]
        sides = [reader(symphony("logs", NAME), state, ours), reader(peer_command, state, peer)]
        in_turns(rounds, *sides)
        yield at_most_times(
            f"two logs of {lines:,} lines, merged",
            [reading.total for reading in ours],
            [reading.total for reading in peer],
            2.0,
            plus=0.5,
            peer_name="sort -m",
        )


def launch(state: Path, count: int, command: Sequence[str]) -> None:
    """Launch ``count`` processes, and wait until they have exited."""
    cluster = local(state)
    exp = cluster.new_experiment(NAME)
    for number in range(count):
        exp.new_process(f"p-{number}", command=list(command))
    cluster.launch(exp)
    cluster.wait(NAME)


def compare(
    state: Path,
    what: str,
    rounds: int,
    *,
    total: float,
    first_byte: float | None = None,
    memory: float | None = None,
) -> Iterator[Figure]:
    """Yield the figures for reading all logs with `symphony logs` and with `cat`.

    The limits are in seconds and MiB.
    """
    files = sorted(map(str, (state / "local" / NAME / "logs").glob("*.log")))
    ours: list[Reading] = []
    peer: list[Reading] = []
    sides = [reader(symphony("logs", NAME), state, ours), reader(["cat", *files], state, peer)]
    in_turns(rounds, *sides)
    rows: list[tuple[str, str, Callable[[Reading], float], float | None]] = [
        (f"{what}: all output", "s", lambda reading: reading.total, total),
        ("  the first byte", "s", lambda reading: reading.first_byte, first_byte),
        ("  maximum memory", "MiB", lambda reading: reading.memory_mebibytes, memory),
    ]
    for text, unit, value, limit in rows:
        yield at_most(
            text, unit, list(map(value, ours)), limit, peer=list(map(value, peer)), peer_name="cat"
        )


def reader(command: list[str], state: Path, readings: list[Reading]) -> Callable[[], float]:
    """Return a function that runs a command, appends its reading, and returns the duration."""

    def read() -> float:
        readings.append(read_output(command, state))
        return readings[-1].total

    return read


def read_output(command: list[str], state: Path) -> Reading:
    """Run a command, discard its output, and return the cost."""
    start = time.perf_counter()
    first_byte = None
    descriptor, output = os.pipe()
    process = subprocess.Popen(command, stdout=output, env=environ(state))
    os.close(output)
    memory, reads = 0.0, 0
    while os.read(descriptor, READ_BYTES):
        first_byte = first_byte or time.perf_counter() - start
        if reads % READS_PER_MEMORY_SAMPLE == 0:
            memory = maximum_memory(process.pid) or memory
        reads += 1
    os.close(descriptor)
    total = time.perf_counter() - start
    if process.wait() or first_byte is None:
        raise SystemExit(f"{command[0]} has failed")
    return Reading(first_byte, total, memory)


def maximum_memory(pid: int) -> float:
    """Return the maximum memory that a process has used so far in MiB, or 0 if it has exited.

    The resource usage that wait4(2) returns is not suitable, because it includes the memory of this
    program before the child executes its command.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / MEBIBYTE_BYTES
    return 0.0


if __name__ == "__main__":
    main(__doc__ or "", measure)
