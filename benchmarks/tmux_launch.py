"""Launching windows: symphony beside one raw ``tmux source-file`` and beside a loop of libtmux's ``new_window``.

    python benchmarks/tmux_launch.py [--windows 50 200 800] [--rounds 5]

All three make the same windows: the same command, name, folder and 30 address variables each, given to the
windows one by one in the raw file as they must be there. symphony also keeps a log of each and supervises it.
``launch`` is until `Cluster.launch` returns, ``running`` until the last command runs. Each round runs all, one
after the other, on servers of their own; a ratio is the median of the rounds' ratios.

symphony's files, a log and a FIFO for each window, are kept in memory where there is a place for that (``--state`` says
another): the raw file writes none, and what a new file costs depends on the disk, on ext4 also on how much was deleted
lately. What they cost on the disk is told beside it.
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

SERVICES = 10  # three variables each, as `SYMPH_<NAME>_HOST`, `_PORT` and `_ADDR`
MEMORY = Path("/dev/shm")
SLOW_PEER = 200  # libtmux takes long: it is measured once, and not for more windows than this


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


def end_server(server: str) -> list[int]:
    """End a server and wait until all of its windows' processes have gone: the next measurement begins in peace."""
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
    """One file of tmux commands, with the process's own argv: not even a shell."""
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
    made = len(end_server("raw"))
    if made != count:
        raise SystemExit(f"the raw file made {made} windows, not {count}")
    return took


def libtmux_loop(count: int, _: Path) -> float:
    """What a launcher on libtmux does: a new window after the other."""
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
    end_server("libtmux")
    return took


def symphony(count: int, folder: Path) -> tuple[float, float]:
    """`Cluster.launch`, from an experiment to its return, and until the last command runs."""
    cluster = Cluster.new("tmux", server_name="symphony-bench", state_dir=folder)
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
    """The median of the ratios, each of two measurements that followed one another."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


@contextmanager
def sockets() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="sy-", dir="/tmp")
    os.environ["TMUX_TMPDIR"] = folder
    os.environ.pop("TMUX", None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


def on_disk(count: int) -> float:
    """How long the files of so many windows take on the disk, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for index in range(count):
            os.mkfifo(f"{folder}/gate-{index}")
            os.close(
                os.open(f"{folder}/log-{index}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
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
    with sockets() as folder, tempfile.TemporaryDirectory(dir=options.state) as state:
        for count in options.windows:
            raws, launches = [], []
            for round_ in range(options.rounds):
                raws.append(raw(count, folder))
                launches.append(symphony(count, Path(state) / f"{count}-{round_}"))
            peer = libtmux_loop(count, folder) if count <= SLOW_PEER else None
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
