"""Measure the page of `symphony ui` in Chromium with 500 processes, and the cost of its server.

The peer of a change is `symphony events -f`, and the peer of the flood is `symphony logs -f`. Both
run at the same time as the page. Memory is measured with an hour of a busy experiment, which is
simulated as fast as possible. Chromium is `chromium-headless-shell` or `chromium` on the PATH.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from _pairs import Figure, Options, at_most, main
from _sleepers import NAME, environ, experiment, local, symphony, temporary_state_directory

FIRST_PAINT = 1.0  # The longest allowed time until all is painted, in seconds.
WITHIN = 0.2  # The longest allowed time from a change until it is visible, in seconds.
IDLE_CPU = 5.0  # The limit for a viewer of an idle experiment, as a percentage of a core.
MEMORY = 200.0  # The limit for the server after a busy hour, in MB.
GROWTH = 20.0  # The limit for its growth in the second half of the hour, in MB.
RATE = 100_000  # Lines per second.
TIMEOUT_MILLISECONDS = 60_000

# This program fails when the benchmark creates its file, and writes the time first.
FAILING = """
import pathlib, sys, time
go, told = map(pathlib.Path, sys.argv[1:])
while not go.exists():
    time.sleep(0.001)
told.write_text(str(time.time()))
raise SystemExit(7)
"""
FLOOD = """
import pathlib, sys, time
rate, seconds, go, told = int(sys.argv[1]), int(sys.argv[2]), *map(pathlib.Path, sys.argv[3:])
while not go.exists():
    time.sleep(0.01)
begin, done, portion = time.monotonic(), 0, rate // 200
while done < rate * seconds:
    time.sleep(max(0.0, begin + done / rate - time.monotonic()))
    print("\\n".join(f"line {number}" for number in range(done, done + portion)), flush=True)
    done += portion
told.write_text(str(time.time()))
print("the end of the flood", flush=True)
time.sleep(1000)
"""
# Resolves with the time at which an element with a text is visible.
WATCH = """
([selector, text]) => { window.seen = new Promise((resolve) => {
    const look = () => {
        for (const element of document.querySelectorAll(selector)) {
            if (element.textContent.includes(text)) {
                requestAnimationFrame(() => resolve(Date.now() / 1000));
                return;
            }
        }
        requestAnimationFrame(look);
    };
    look();
}); }
"""
# Resolves with the seconds from the navigation until the first rows or boxes are painted.
PAINTED = """
(selector) => new Promise((resolve) => {
    const look = () => {
        if (document.querySelector(selector)) {
            requestAnimationFrame(() => setTimeout(() => resolve(performance.now() / 1000)));
        } else requestAnimationFrame(look);
    };
    look();
})
"""
# An hour of a busy experiment: samples of all processes, events and lines, as fast as possible.
HOUR = """
import asyncio, json, sys
import psutil
from symphony.cluster import Cluster
from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony.views.experiment_model import EventSeen, StatusSeen, UsageSeen
from symphony.views.web.unseen_changes import Position, experiment_changes, output_changes
from symphony.views.web.channels import ExperimentChannel, OutputChannel

async def hour(processes, seconds, lines):
    loop = asyncio.get_running_loop()
    cluster = Cluster.new("local", state_dir=sys.argv[4])
    channel = ExperimentChannel(loop, cluster, "busy")
    output = OutputChannel(loop, cluster, "busy", (), 1000)
    names = [f"process-{number}" for number in range(processes)]
    seen, read = Position(), Position()
    sizes = []
    for second in range(seconds):
        restarted = names[second % processes]
        statuses = tuple(
            ProcessStatus(name=name, state=State.RUNNING, restarts=second // processes, pid=second)
            for name in names
        )
        channel._update(StatusSeen(ExperimentStatus(
            name="busy", backend="local", processes=statuses, created=1.0)))
        for kind in (EventKind.EXITED, EventKind.STARTED):
            channel._update(EventSeen(
                ExperimentEvent(at=second, kind=kind, process=restarted, text="exited with 1"), 1))
        channel._update(UsageSeen(ExperimentUsage(at=second, processes=tuple(
            ProcessUsage(process=name, cpu=second / 7, memory=second * 4096 + 300) for name in names
        ))))
        text = "".join(f"{second} an ordinary line of the log {n}\\n" for n in range(lines))
        output._add(LogBlock(restarted, text, float(second)))
        message, seen = experiment_changes(channel, seen)
        json.dumps(message)
        message, read = output_changes(output, read, 1000)
        json.dumps(message)
        await asyncio.sleep(0)
        if second in (seconds // 2, seconds - 1):
            sizes.append(psutil.Process().memory_info().rss / 1e6)
    print(json.dumps(sizes))

asyncio.run(hour(*map(int, sys.argv[1:4])))
"""


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count = options.pick(500, 50)
    with temporary_state_directory() as state:
        exp = experiment(count - 2)
        files = [str(state / name) for name in ("go", "told", "flood", "flooded")]
        exp.new_process("failing", command=[sys.executable, "-c", FAILING, *files[:2]])
        flood = [sys.executable, "-c", FLOOD, str(RATE), str(options.pick(5, 1)), *files[2:]]
        exp.new_process("flood", command=flood)
        local(state).launch(exp)
        with Page(state) as page:
            yield from first_paint(page, count, options.pick(5, 2))
            yield from idle(page, options.pick(20, 4))
            yield from change(page, state)
            yield from flooded(page, state)
    yield from busy_hour(count, options.pick(3600, 240), options.pick(1000, 100))


class Page:
    """A server, a browser, and a page in it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Page:
        from playwright.sync_api import sync_playwright

        server = subprocess.Popen(
            symphony("ui", "--no-open", "--json", NAME),
            env=environ(self._state),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._stack.callback(server.wait)
        self._stack.callback(server.terminate)
        self.server = psutil.Process(server.pid)
        line = server.stdout.readline() if server.stdout else ""
        address = json.loads(line)["address"]
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        if program is None:
            sys.exit("chromium was not found on the PATH: apt-get install chromium-headless-shell")
        playwright = self._stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        self._stack.callback(browser.close)
        self.page: Any = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.set_default_timeout(TIMEOUT_MILLISECONDS)
        self.page.goto(address)
        self.base = self.page.url
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def first_paint(page: Page, count: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures for the time from the navigation until the processes are painted."""
    for what, query, selector in (
        ("topology", "", ".box.process, .box.group"),
        ("table", "?tab=processes", ".rows-space .row"),
    ):
        times = []
        for _ in range(rounds):
            # A blank page in between, because the address differs only in its fragment.
            page.page.goto("about:blank")
            page.page.goto(page.base + query, wait_until="commit")
            times.append(page.page.evaluate(PAINTED, selector))
        yield at_most(f"{count} processes: first paint of the {what}", "s", times, FIRST_PAINT)


def idle(page: Page, seconds: int) -> Iterator[Figure]:
    """Yield the figure for the processor time of the server while nothing happens."""
    time.sleep(2)
    begin = page.server.cpu_times()
    time.sleep(seconds)
    end = page.server.cpu_times()
    used = end.user + end.system - begin.user - begin.system
    yield at_most("  the server, while nothing happens", "%", [100 * used / seconds], IDLE_CPU)


def change(page: Page, state: Path) -> Iterator[Figure]:
    """Yield the figure for the time from the exit of a process until it is visible."""
    seen: list[float] = []
    follower = subprocess.Popen(
        symphony("events", "-f", NAME, "failing"),
        env=environ(state),
        stdout=subprocess.PIPE,
        text=True,
    )

    def follow() -> None:
        for line in follower.stdout or ():
            if "exited" in line:
                seen.append(time.time())

    thread = threading.Thread(target=follow)
    thread.start()
    page.page.goto(page.base + "?tab=processes")
    page.page.wait_for_selector(".rows-space .row")
    page.page.evaluate(WATCH, [".rows-space .row.state-failed .cell-name", "failing"])
    time.sleep(1)
    (state / "go").touch()
    visible = page.page.evaluate("window.seen")
    # The follower ends with the process.
    thread.join()
    follower.wait()
    exited = float((state / "told").read_text())
    yield at_most(
        "  a change is visible after",
        "s",
        [visible - exited],
        WITHIN,
        peer=[seen[0] - exited],
        peer_name="events -f",
    )


def flooded(page: Page, state: Path) -> Iterator[Figure]:
    """Yield the figures for a flood of lines: the delay of the last one, and the server's cost."""
    follower = subprocess.Popen(
        symphony("logs", "-f", NAME, "flood", "--tail", "0"),
        env=environ(state),
        stdout=subprocess.PIPE,
        text=True,
    )
    seen: list[float] = []

    def follow() -> None:
        for line in follower.stdout or ():
            if "the end of the flood" in line:
                seen.append(time.time())
                follower.terminate()

    thread = threading.Thread(target=follow)
    thread.start()
    page.page.goto(page.base + "?tab=output")
    page.page.evaluate(WATCH, [".line-row .line-text", "the end of the flood"])
    time.sleep(2)
    before = page.server.cpu_times()
    begin = time.monotonic()
    (state / "flood").touch()
    visible = page.page.evaluate("window.seen")
    seconds = time.monotonic() - begin
    after = page.server.cpu_times()
    thread.join()
    follower.wait()
    written = float((state / "flooded").read_text())
    used = 100 * (after.user + after.system - before.user - before.system) / seconds
    yield at_most(
        f"{RATE:,} lines a second: the last is visible after",
        "s",
        [visible - written],
        None,
        peer=[seen[0] - written],
        peer_name="logs -f",
    )
    yield at_most("  the server meanwhile", "%", [used], None)


def busy_hour(processes: int, seconds: int, lines: int) -> Iterator[Figure]:
    """Yield the figures for the memory of the server after an hour of a busy experiment."""
    with temporary_state_directory() as state:
        done = subprocess.run(
            [sys.executable, "-c", HOUR, *map(str, (processes, seconds, lines)), str(state)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    half, end = json.loads(done.stdout)
    what = f"{seconds} s of {processes} processes and {lines:,} lines a second: memory"
    yield at_most(what, "MB", [end], MEMORY)
    yield at_most("  its growth in the second half", "MB", [max(0.0, end - half)], GROWTH)


if __name__ == "__main__":
    main(__doc__ or "", measure)
