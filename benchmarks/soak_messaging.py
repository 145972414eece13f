"""Exchange messages for ten minutes, and print the resource use of both ends at intervals.

This program is not part of CI; a person reads its output.

    nice python benchmarks/soak_messaging.py --minutes 10

Two processes exchange messages with every pattern: requests (some of which time out or fail),
pushes, topics and acknowledged sends. One of the processes repeatedly opens and closes its sockets.
The exit code is 1 if either end used more memory, descriptors or threads in the second half of the
run than in the first half, apart from a small tolerance for memory and descriptors.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

import psutil

from symphony.addons.zmq import (
    ZmqClient,
    ZmqPub,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqRemoteError,
    ZmqSender,
    ZmqServer,
    ZmqSub,
    ZmqTimeoutError,
)

GROWTH = 0.05  # The fraction by which the memory of either end may grow.
SLACK = 2 * 2**20  # The additional tolerance for memory, in bytes.

Held = tuple[int, int, int]


def other_end() -> None:
    """Answer requests, publish, and receive messages until standard input is closed."""
    logging.disable()
    server, pull = ZmqServer(port=0, serializer="json"), ZmqPull(port=0)
    pub, receiver = ZmqPub(port=0, serializer="json"), ZmqReceiver(port=0)
    print(server.address, pull.address, pub.address, receiver.address, flush=True)

    def handler(number: int) -> int:
        if number % 1000 == 0:
            time.sleep(0.1)  # The client's request times out during this pause.
        return 100 // (number % 500)  # This division fails for multiples of 500.

    server.start_loop(handler)
    for end in (pull, receiver):
        threading.Thread(target=deque, args=(end, 0), daemon=True).start()
    over = threading.Event()

    def publish() -> None:
        number = 0
        while not over.wait(0.001):
            pub.send("even" if number % 2 == 0 else "odd", [number] * 20)
            number += 1

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    sys.stdin.read()
    over.set()
    publisher.join()
    for end in (server, pull, pub, receiver):
        end.close()


def talk(addresses: list[str], number: int) -> int:
    """Run one round of all patterns, and return the number of messages."""
    server, pull, pub, receiver = addresses
    count = 0
    with (
        ZmqClient(address=server, serializer="json", timeout=0.05) as client,
        ZmqPush(address=pull) as push,
        ZmqSub(address=pub, serializer="json", topics="even", timeout=5) as sub,
        ZmqSender(address=receiver, timeout=5) as sender,
    ):
        for turn in range(1000):
            with contextlib.suppress(ZmqTimeoutError, ZmqRemoteError):
                client.request(number + turn)
            for _ in range(20):
                push.send(b"x" * 1000)
            count += 21
            if turn % 10 == 0:
                sender.send(b"y" * 10_000)
                sub.recv()
                count += 2
    return count


def figures(process: psutil.Process) -> Held:
    """Return the resident memory in bytes, and the numbers of descriptors and threads."""
    return process.memory_info().rss, process.num_fds(), process.num_threads()


@contextlib.contextmanager
def running() -> Iterator[tuple[psutil.Process, list[str]]]:
    """Start the process at the other end, and yield it and its addresses."""
    command = [sys.executable, __file__, "--other-end"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield (
                psutil.Process(process.pid),
                (process.stdout.readline() if process.stdout else "").split(),
            )
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(30)


def soak(minutes: float) -> bool:
    """Exchange messages for ``minutes`` minutes, and print the resource use of both ends.

    Return True if neither end's resource use grew.
    """
    begin, every = time.monotonic(), minutes * 60 / 20
    samples: list[tuple[Held, ...]] = []
    messages, number, due = 0, 0, begin
    with running() as (other, addresses):
        ends = (psutil.Process(os.getpid()), other)
        print(
            "minutes   messages   this end: MiB, descriptors, threads   "
            "other end: MiB, descriptors, threads"
        )
        while time.monotonic() - begin < minutes * 60:
            messages += talk(addresses, number)
            number += 1000
            if time.monotonic() >= due:
                due += every
                samples.append(tuple(figures(end) for end in ends))
                columns = "   ".join(
                    f"{rss / 2**20:8.1f} {fds:4} {threads:4}" + " " * 16
                    for rss, fds, threads in samples[-1]
                )
                print(
                    f"{(time.monotonic() - begin) / 60:7.1f} {messages:10,}   {columns}".rstrip(),
                    flush=True,
                )
    half = len(samples) // 2
    for end in (0, 1):
        early = [pair[end] for pair in samples[1:half]]
        late = [pair[end] for pair in samples[half:]]
        if not steady(early, late):
            return False
    return True


def steady(early: list[Held], late: list[Held]) -> bool:
    """Return whether an end's largest late values do not exceed its largest early values.

    Slight growth in memory is tolerated, and so are two additional descriptors, because sockets may
    still be closing.
    """
    largest_early = [max(column) for column in zip(*early, strict=True)]
    largest_late = [max(column) for column in zip(*late, strict=True)]
    memory, descriptors, threads = zip(largest_early, largest_late, strict=True)
    return (
        memory[1] <= memory[0] * (1 + GROWTH) + SLACK
        and descriptors[1] <= descriptors[0] + 2
        and threads[1] <= threads[0]
    )


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--other-end", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.other_end:
        other_end()
        return
    logging.disable()
    steady = soak(options.minutes)
    print("no growth" if steady else "GROWTH")
    raise SystemExit(0 if steady else 1)


if __name__ == "__main__":
    main()
