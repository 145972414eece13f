"""Measure how long 64 ranks take to start and to pass a barrier, compared with torchrun.

    symphony launch   on a YAML file with `ranks: 64`
    torchrun          `torchrun --nproc-per-node 64` with the same program

The time begins with the start of the command, and finishes when rank 0 knows that all ranks have
reached the barrier. In the first comparison, the program is a few lines that need no package, so
that the time is that of the launchers. In the second one, which --quick omits, the barrier is that
of torch.distributed, so each rank imports torch.

torch is installed in no environment of symphony. SYMPHONY_BENCH_TORCH is the path of a Python with
torch. Without it, symphony is measured alone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _pairs import Figure, Options, at_most, at_most_times, in_turns, main
from _sleepers import environ, idle_waiter, local, memory, symphony, temporary_state_directory

NAME = "barrier"
RANKS = 64
MAX_TIMES = 1.1
TIMEOUT_SECONDS = 600.0
PYTHON = os.environ.get("SYMPHONY_BENCH_TORCH")

# Rank 0 writes the time at which all ranks have reached the barrier. torchrun itself uses the
# master port, so its ranks get another port.
PLAIN = """
import os, socket, sys, time
file, port = sys.argv[1], int(sys.argv[2] if len(sys.argv) > 2 else os.environ["MASTER_PORT"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    server = socket.create_server(("127.0.0.1", port), backlog=size)
    peers = [server.accept()[0] for _ in range(size - 1)]
    now = time.monotonic()
    for peer in peers:
        peer.sendall(b"go")
    with open(file + ".new", "w") as output:
        output.write(str(now))
    os.rename(file + ".new", file)
else:
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.01)
    peer.recv(2)
"""
TORCH = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    with open(sys.argv[1] + ".new", "w") as output:
        output.write(str(time.monotonic()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
dist.barrier()
dist.destroy_process_group()
"""


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    python = PYTHON or sys.executable
    yield compare("a barrier of sockets", python, PLAIN, options.pick(6, 3))
    if PYTHON is not None and not options.quick:
        yield compare("a barrier of torch.distributed", python, TORCH, 2)


def compare(what: str, python: str, program: str, runs: int) -> Figure:
    """Measure both sides in turns, and return the figure for one program."""
    with temporary_state_directory(memory()) as state:
        file = state / "barrier.py"
        file.write_text(program)
        settled = idle_waiter()
        title = f"{RANKS} ranks past {what}"
        if PYTHON is None:
            (ours,) = in_turns(runs, lambda: launched(state, python, file), settled=settled)
            note = "SYMPHONY_BENCH_TORCH is not set, so torchrun was not measured"
            return at_most(title, "s", ours, None, note=note)
        ours, peer = in_turns(
            runs,
            lambda: launched(state, python, file),
            lambda: torchrun(state, python, file),
            settled=settled,
        )
    return at_most_times(title, ours, peer, MAX_TIMES, peer_name="torchrun")


def launched(state: Path, python: str, program: Path) -> float:
    """Return the time with `symphony launch`."""
    passed = state / "passed"
    description = {"ranks": RANKS, "command": [python, str(program), str(passed)]}
    document = {"name": NAME, "processes": {"rank": description}}
    (state / "ranks.yml").write_text(json.dumps(document))
    try:
        begin = time.monotonic()
        subprocess.run(
            symphony("launch", str(state / "ranks.yml")),
            env=environ(state),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        seconds = await_barrier(passed) - begin
        local(state).wait(NAME, timeout=TIMEOUT_SECONDS)
    finally:
        local(state).delete(NAME)
    return seconds


def torchrun(state: Path, python: str, program: Path) -> float:
    """Return the time with torchrun."""
    passed, (master, port) = state / "passed", free_ports()
    launcher = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(master)]
    begin = time.monotonic()
    process = subprocess.Popen(
        [*launcher, *address, str(program), str(passed), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        seconds = await_barrier(passed) - begin
        process.wait(TIMEOUT_SECONDS)
    finally:
        process.kill()
        process.wait()
    return seconds


def await_barrier(passed: Path) -> float:
    """Return the time at which all ranks had reached the barrier, on the monotonic clock."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not passed.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ranks did not reach the barrier in {TIMEOUT_SECONDS:g} s")
        time.sleep(0.01)
    found = float(passed.read_text())
    passed.unlink()
    return found


def free_ports() -> tuple[int, int]:
    """Return two ports on which no program listens."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        return one.getsockname()[1], other.getsockname()[1]


if __name__ == "__main__":
    main(__doc__, measure)
