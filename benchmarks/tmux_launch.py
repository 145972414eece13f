"""Measure how long symphony takes to launch tmux windows.

The peers are a raw file of tmux commands, which ``tmux source-file`` runs, and a loop that calls
libtmux's ``new_window``.

    python benchmarks/tmux_launch.py [--windows 50 200 800] [--rounds 5]

All three create windows with the same names, command and directory, and with 30 address variables
per window. The raw file sets the variables separately for each window. symphony also supervises and
logs the process in each window. ``launch`` is the time until `Cluster.launch` returns, and
``running`` is the time until all commands are running. Each round measures the raw file and
symphony one after the other, on separate servers. ``x raw`` is symphony's time divided by the raw
file's time (the median over all rounds). libtmux is measured only once for each number of windows,
and with at most 200 windows. ``x launch`` is libtmux's time divided by the median ``launch`` time.

symphony creates a log and a FIFO for each window, but the raw file does not. The benchmark keeps
these files in memory if possible, because the time to create a file on a disk depends on the disk
and, on ext4, also on the number of recently deleted files. ``--state`` sets another directory. The
time to create the files on the disk is measured separately and printed.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from symphony import Cluster

SERVICES = 10  # Each service has three variables: `SYMPH_<NAME>_HOST`, `_PORT` and `_ADDR`.
MEMORY = Path("/dev/shm")
SLOW_PEER = 200  # libtmux is slow, so it is not measured with more than this number of windows.


def variables() -> dict[str, str]:
    found = {}
    for index in range(SERVICES):
        name = f"SYMPH_SERVICE_{index}"
        found |= {
            f"{name}_HOST": "127.0.0.1",
            f"{name}_PORT": str(7000 + index),
            f"{name}_ADDR": f"127.0.0.1:{7000 + index}",
        }
    return found


def tmux(server: str, *words: str, **options: object) -> str:
    command = ["tmux", "-L", server, "-f", os.devnull, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout  # type: ignore[call-overload,no-any-return]


def kill_server(server: str) -> list[int]:
    """Stop a server, and return the pids of the processes in its windows.

    Wait until the server and these processes have exited, so that they do not disturb the next
    measurement.
    """
    pids = [
        int(line) for line in tmux(server, "list-panes", "-a", "-F", "#{pane_pid}").splitlines()
    ]
    watched = [
        os.pidfd_open(int(pid)) for pid in [*pids, tmux(server, "display-message", "-p", "#{pid}")]
    ]
    tmux(server, "kill-server")
    for descriptor in watched:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        os.close(descriptor)
    return pids


def raw(count: int, _: Path) -> float:
    """Create the windows from one file of tmux commands, and return the time in seconds.

    Each command contains the process's argv, so tmux starts no shell.
    """
    given = " ".join(f"-e {key}={value}" for key, value in variables().items())
    lines = []
    for index in range(count):
        make = "new-session -d -s bench" if index == 0 else f"new-window -d -t bench:{index}"
        lines.append(f"{make} -n w-{index} -c /tmp {given} -- sleep 1000")
    with tempfile.NamedTemporaryFile("w", suffix=".tmux") as file:
        file.write("\n".join([*lines, ""]))
        file.flush()
        begin = time.perf_counter()
        tmux("raw", "start-server", ";", "source-file", file.name)
        took = time.perf_counter() - begin
    made = len(kill_server("raw"))
    if made != count:
        raise SystemExit(f"the raw file made {made} windows, not {count}")
    return took


def libtmux_loop(count: int, _: Path) -> float:
    """Create the windows one by one, as a launcher based on libtmux does, and return the time in
    seconds.
    """
    import libtmux

    begin = time.perf_counter()
    server = libtmux.Server(socket_name="libtmux", config_file=os.devnull)
    session = server.new_session(
        "bench",
        window_name="w-0",
        start_directory="/tmp",
        environment=variables(),
        window_command="sleep 1000",
    )
    for index in range(1, count):
        session.new_window(
            f"w-{index}",
            start_directory="/tmp",
            environment=variables(),
            window_shell="sleep 1000",
            attach=False,
        )
    took = time.perf_counter() - begin
    kill_server("libtmux")
    return took


def symphony(count: int, directory: Path) -> tuple[float, float]:
    """Launch the windows with symphony. Return the time in seconds until `Cluster.launch` returns,
    and the time until all commands are running.
    """
    cluster = Cluster.new("tmux", server_name="symphony-bench", state_dir=directory)
    experiment = cluster.new_experiment("bench", start_dir="/tmp")
    for index in range(count):
        process = experiment.new_process(f"w-{index}", command="sleep", args=["1000"])
        if index < SERVICES:
            process.binds(f"service-{index}")
    begin = time.perf_counter()
    cluster.launch(experiment)
    launched = time.perf_counter() - begin
    pids = [process.pid for process in cluster.describe_experiment("bench")]
    while any(b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes()[:8] for pid in pids):
        time.sleep(0.005)
    running = time.perf_counter() - begin
    cluster.delete("bench")
    return launched, running


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the round-by-round ratios of ``ours`` to ``theirs``."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


@contextmanager
def sockets() -> Iterator[Path]:
    directory = tempfile.mkdtemp(prefix="sy-", dir="/tmp")
    os.environ["TMUX_TMPDIR"] = directory
    os.environ.pop("TMUX", None)
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory)


def on_disk(count: int) -> float:
    """Create the files for ``count`` windows on the disk, and return the time in seconds."""
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        for index in range(count):
            os.mkfifo(f"{directory}/gate-{index}")
            os.close(
                os.open(f"{directory}/log-{index}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            )
        return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, nargs="+", default=[50, 200, 800])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--state", type=Path, default=MEMORY if MEMORY.is_dir() else None, metavar="FOLDER"
    )
    options = parser.parse_args()
    titles = (
        "windows",
        "raw s",
        "launch s",
        "x raw",
        "running s",
        "x raw",
        "libtmux s",
        "x launch",
    )
    print("{:>8} {:>8} {:>9} {:>6} {:>10} {:>6} {:>10} {:>9}".format(*titles))
    missed = False
    with sockets() as directory, tempfile.TemporaryDirectory(dir=options.state) as state:
        for count in options.windows:
            raws, launches = [], []
            for round_ in range(options.rounds):
                raws.append(raw(count, directory))
                launches.append(symphony(count, Path(state) / f"{count}-{round_}"))
            peer = libtmux_loop(count, directory) if count <= SLOW_PEER else None
            launched, running = zip(*launches, strict=True)
            over_raw, until_running = (ratio(times, raws) for times in (launched, running))
            usual = statistics.median(launched)
            faster = f"{peer:10.3f} {peer / usual:8.1f}x" if peer else f"{'-':>10} {'-':>9}"
            print(
                f"{count:8} {statistics.median(raws):8.3f} {usual:9.3f} {over_raw:5.2f}x "
                f"{statistics.median(running):10.3f} {until_running:5.2f}x {faster}",
                flush=True,
            )
            if count == 200:
                missed = over_raw > 1.5 or (peer or 0) < 5 * usual
    print(f"the files of 200 windows on the disk: {on_disk(200):.3f} s")
    print(
        "at 200 windows: at most 1.5x raw, at least 5x faster than libtmux:",
        "MISSED" if missed else "met",
    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
