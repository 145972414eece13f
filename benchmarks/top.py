"""Measure `symphony top` in a terminal: its start, its cost while nothing happens, and a fast log.

The terminal is a tmux server of its own. The peers run in such a terminal, too: `symphony ps`, the
`top` of procps, `symphony logs -f` and `tail -f`.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
from _pairs import Figure, Options, at_most, in_turns, main, median
from _sleepers import (
    NAME,
    environ,
    experiment,
    local,
    symphony,
    temporary_directory,
    temporary_state_directory,
)
from idle import cpu_seconds

START = 1.5  # The longest allowed time from the command to the first table, in seconds.
IDLE_CPU = 10.0  # The CPU limit as a percentage of a core.
FLOOD_CPU = 60.0
FLOOD_MEMORY = 120.0  # MB
RATE = 100_000  # The required rate in lines per second.
DELAY = 0.5  # The longest allowed time from writing a line to showing it, in seconds.
TIMEOUT = 30.0
SETTLE = 3.0

# The program writes a burst of lines every 5 ms. Each line contains the time of its burst.
FLOOD = """
import time
rate = {rate}
begin, done, portion = time.monotonic(), 0, rate // 200
while True:
    time.sleep(max(0.0, begin + done / rate - time.monotonic()))
    stamp = f"at {{time.monotonic():.3f}} some text of an ordinary line, loss=0.123456"
    print("\\n".join([stamp] * portion), flush=True)
    done += portion
"""
_STAMP = re.compile(r"at (\d+\.\d+) some text")

Command = Sequence[str]


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    yield from many(options.pick(500, 50), options.pick(5, 2), options.pick(20, 3))
    yield from flood(options.pick(10, 2))


def many(count: int, rounds: int, seconds: int) -> Iterator[Figure]:
    """Yield the figures for an experiment with ``count`` processes that sleep."""
    with temporary_state_directory() as state:
        local(state).launch(experiment(count))
        ours, peer = in_turns(
            rounds,
            lambda: start(state, symphony("top", NAME)),
            lambda: start(state, symphony("ps", NAME)),
        )
        what = f"start of top with {count} processes"
        yield at_most(what, "s", ours, START, peer=peer, peer_name="symphony ps")
        with (
            Terminal(state, symphony("top", NAME)) as top,
            Terminal(state, ["top", "-d", "1"]) as other,
        ):
            top.wait_for("sleeper-")
            time.sleep(SETTLE)
            (spent, other_spent), (memory, other_memory) = cost([top, other], seconds)
    what = f"top of {count} idle processes, CPU over {seconds} s"
    name = "top of procps"
    yield at_most(what, "% of a core", [spent], IDLE_CPU, peer=[other_spent], peer_name=name)
    yield at_most("  memory (RSS)", "MB", [memory], None, peer=[other_memory], peer_name=name)


def start(state: Path, command: Command) -> float:
    """Return the time from the start of a command until it shows a process."""
    begin = time.perf_counter()
    with Terminal(state, command) as terminal:
        terminal.wait_for("sleeper-")
        return time.perf_counter() - begin


def flood(seconds: int) -> Iterator[Figure]:
    """Yield the figures for a process that writes fast, whose log is shown by each program."""
    with temporary_state_directory() as state:
        exp = experiment(0)
        exp.new_process("writer", command=[sys.executable, "-c", FLOOD.format(rate=RATE)])
        local(state).launch(exp)
        log = state / "local" / NAME / "logs" / "writer.log"
        delays: list[list[float]] = []
        costs: list[tuple[float, float]] = []
        commands: list[tuple[Command, str]] = [
            (symphony("top", NAME), "3"),
            (symphony("logs", "-f", "--tail", "100", NAME), ""),
            (["tail", "-f", str(log)], ""),
        ]
        for command, keys in commands:
            with Terminal(state, command) as terminal:
                if keys:
                    terminal.wait_for("writer")
                    terminal.press(keys)
                terminal.wait_for("at ")
                time.sleep(SETTLE)
                (spent,), (memory,) = cost([terminal], seconds, delays.append)
                costs.append((spent, memory))
    what = f"a log with {RATE:,} lines a second, CPU over {seconds} s"
    for number, name in ((1, "symphony logs -f"), (2, "tail -f")):
        rows = [
            (what, "% of a core", 0, FLOOD_CPU),
            ("  memory (RSS)", "MB", 1, FLOOD_MEMORY),
        ]
        for title, unit, index, limit in rows:
            yield at_most(
                title,
                unit,
                [costs[0][index]],
                limit,
                peer=[costs[number][index]],
                peer_name=name,
            )
        yield at_most(
            "  age of the last line shown: median",
            "s",
            [median(delays[0])],
            DELAY,
            peer=[median(delays[number])],
            peer_name=name,
        )


def cost(
    terminals: Sequence[Terminal],
    seconds: int,
    add_delays: Callable[[list[float]], object] | None = None,
) -> tuple[list[float], list[float]]:
    """Return the CPU use as a percentage of a core, and the memory in MB, of each program.

    ``add_delays`` is called with the ages of the last lines that the first terminal shows.
    """
    processes = [terminal.program() for terminal in terminals]
    before = [cpu_seconds(process) for process in processes]
    begin = time.monotonic()
    delays: list[float] = []
    while time.monotonic() < begin + seconds:
        time.sleep(0.25)
        if add_delays is not None:
            delays += terminals[0].delay()
    passed = time.monotonic() - begin
    after = [cpu_seconds(process) for process in processes]
    if add_delays is not None:
        add_delays(delays)
    spent = [100 * (new - old) / passed for old, new in zip(before, after, strict=True)]
    return spent, [process.memory_info().rss / 1e6 for process in processes]


class Terminal:
    """A program in the only window of a tmux server."""

    def __init__(self, state: Path, command: Command) -> None:
        self._state = state
        self._command = command
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Terminal:
        directory = self._stack.enter_context(temporary_directory())
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(directory / "socket")]
        command = f"{shlex.join(self._command)}; exec sleep 1000"
        self._run("new-session", "-d", "-x", "120", "-y", "40", command)
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")
        self._stack.close()

    def press(self, *keys: str) -> None:
        """Press keys."""
        self._run("send-keys", *keys)

    def show(self) -> str:
        """Return what the terminal shows."""
        return self._run("capture-pane", "-p")

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.show():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{text!r} was not shown, but:\n{self.show()}")
            time.sleep(0.01)

    def delay(self) -> list[float]:
        """Return the age of the last line that is shown, if it has a time."""
        stamps = _STAMP.findall(self.show())
        return [time.monotonic() - float(stamps[-1])] if stamps else []

    def program(self) -> psutil.Process:
        """Return the program, which is the child of the shell of the window."""
        shell = psutil.Process(int(self._run("display-message", "-p", "#{pane_pid}")))
        return shell.children()[0]

    def _run(self, *arguments: str) -> str:
        env = {**environ(self._state), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [*self._tmux, *arguments], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout


if __name__ == "__main__":
    main(__doc__, measure)
