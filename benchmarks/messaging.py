"""Measure round trips and messages per second of `symphony.addons.zmq`.

The peer is bare pyzmq, which performs the same work.

At the other end, a separate process either echoes each request or receives messages. With JSON, the
peer calls the same codec directly at both ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import zmq
from _pairs import Figure, Options, Side, in_turns, main, timed, times_faster

from symphony.addons.zmq import ZmqClient, ZmqPush

SIZES = {100: "100 B", 10_000: "10 KB", 1_000_000: "1 MB"}
# The two sides are measured in many short turns. The benchmark and the process at the other end run
# on separate cores. Otherwise, the figures would depend more on the scheduler's choice of cores
# than on the work.
ROUND_TRIPS = {100: 400, 10_000: 400, 1_000_000: 40}
MESSAGES = {100: 30_000, 10_000: 5_000, 1_000_000: 60}
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
SHARE = {"bytes": 0.85, "JSON": 0.7}

# Each program prints the address on which it listens. SINK reads from standard input how many
# messages to receive, and prints a line when it has received all of them.
SINK = """
import json, sys, zmq
from symphony.addons.zmq import ZmqPull
ours, as_json = sys.argv[1] == "ours", sys.argv[2] == "JSON"
if ours:
    pull = ZmqPull(port=0, serializer="json" if as_json else None)
    print(pull.address, flush=True)
    take = pull.recv
else:
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind("tcp://127.0.0.1:*")
    print(socket.last_endpoint.decode(), flush=True)
    take = (lambda: json.loads(socket.recv())) if as_json else socket.recv
for line in sys.stdin:
    for _ in range(int(line)):
        take()
    print("done", flush=True)
"""
ECHO = """
import json, sys, zmq
from symphony.addons.zmq import ZmqServer
ours, as_json = sys.argv[1] == "ours", sys.argv[2] == "JSON"
if ours:
    server = ZmqServer(port=0, serializer="json" if as_json else None)
    print(server.address, flush=True)
    server.start_loop(lambda message: message, blocking=True)
socket = zmq.Context().socket(zmq.REP)
socket.bind("tcp://127.0.0.1:*")
print(socket.last_endpoint.decode(), flush=True)
while True:
    message = socket.recv()
    if as_json:
        message = json.dumps(json.loads(message), separators=(",", ":")).encode()
    socket.send(message)
"""


@dataclass(frozen=True)
class Other:
    """The process at the other end."""

    process: subprocess.Popen[str]
    address: str

    def take(self, count: int) -> None:
        """Make the other process receive ``count`` messages."""
        if self.process.stdin is not None:
            print(count, file=self.process.stdin, flush=True)

    def has_taken(self) -> None:
        """Wait until the other process has received the messages."""
        if self.process.stdout is not None:
            self.process.stdout.readline()


@contextlib.contextmanager
def other(program: str, side: str, form: str) -> Iterator[Other]:
    """Start a process at the other end, yield it, and finally stop it."""
    command = [sys.executable, "-c", program, side, form]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    put(process.pid, CORES[-1:])
    try:
        yield Other(process, process.stdout.readline().strip() if process.stdout else "")
    finally:
        process.kill()
        process.communicate()


def put(process: int, cores: list[int]) -> None:
    """Restrict a process to ``cores`` unless the list is empty. Process 0 is the caller."""
    if cores:
        os.sched_setaffinity(process, cores)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    put(0, CORES[:1])
    runs = options.pick(31, 7)
    for form in ("bytes", "JSON"):
        for size, name in SIZES.items():
            part = 20 if form == "JSON" and size == 1_000_000 else 1
            trips = max(1, ROUND_TRIPS[size] // part)
            yield figure(
                f"round trips, {name}, {form}",
                form,
                runs,
                ECHO,
                round_trips,
                message(size, form),
                trips,
            )
        for size, name in SIZES.items():
            part = 20 if form == "JSON" else 1
            count = max(1, MESSAGES[size] // part)
            yield figure(
                f"messages, {name}, {form}", form, runs, SINK, messages, message(size, form), count
            )


def message(size: int, form: str) -> Any:
    """Return a message: bytes, or numbers and text of about the same size for JSON."""
    if form == "bytes":
        return b"x" * size
    found: dict[str, Any] = {"step": 7, "reward": [], "note": "abcdefghij"}
    found["reward"] = [0.125] * ((size - len(json.dumps(found, separators=(",", ":")))) // 6)
    return found


def figure(
    what: str,
    form: str,
    runs: int,
    program: str,
    work: Callable[[str, str, Other, Any, int, contextlib.ExitStack], Side],
    content: Any,
    count: int,
) -> Figure:
    """Measure symphony and pyzmq in turns, each with its own process at the other end."""
    with contextlib.ExitStack() as stack:
        sides = []
        for side in ("ours", "bare"):
            end = stack.enter_context(other(program, side, form))
            sides.append(work(side, form, end, content, count, stack))
            sides[-1]()  # The first call opens the connection.
        ours, peer = in_turns(runs, *sides)
    return times_faster(
        what,
        [time / count for time in ours],
        [time / count for time in peer],
        SHARE[form],
        peer_name="pyzmq",
    )


def round_trips(
    side: str, form: str, end: Other, content: Any, count: int, stack: contextlib.ExitStack
) -> Side:
    """Return a side that measures the duration of ``count`` round trips."""
    if side == "ours":
        client = ZmqClient(
            address=end.address, serializer="json" if form == "JSON" else None, timeout=60
        )
        ask = stack.enter_context(client).request
    else:
        socket = connected(zmq.REQ, end.address, stack)
        socket.rcvtimeo = 60_000
        ask = asking_json(socket) if form == "JSON" else asking(socket)

    def run() -> None:
        for _ in range(count):
            ask(content)

    return lambda: timed(run)


def asking(socket: zmq.Socket[bytes]) -> Callable[[bytes], bytes]:
    """Return a function that sends bytes and returns the reply."""

    def ask(content: bytes) -> bytes:
        socket.send(content)
        return socket.recv()

    return ask


def asking_json(socket: zmq.Socket[bytes]) -> Callable[[Any], Any]:
    """Return a function that sends a message as JSON and returns the decoded reply."""

    def ask(content: Any) -> Any:
        socket.send(json.dumps(content, separators=(",", ":")).encode())
        return json.loads(socket.recv())

    return ask


def messages(
    side: str, form: str, end: Other, content: Any, count: int, stack: contextlib.ExitStack
) -> Side:
    """Return a side that measures the time until the other end has received ``count`` messages."""
    if side == "ours":
        send = stack.enter_context(
            ZmqPush(address=end.address, serializer="json" if form == "JSON" else None)
        ).send
    else:
        socket = connected(zmq.PUSH, end.address, stack)
        send = sending_json(socket) if form == "JSON" else socket.send

    def run() -> None:
        end.take(count)
        for _ in range(count):
            send(content)
        end.has_taken()

    return lambda: timed(run)


def sending_json(socket: zmq.Socket[bytes]) -> Callable[[Any], None]:
    """Return a function that sends a message as JSON."""
    return lambda content: socket.send(json.dumps(content, separators=(",", ":")).encode()) and None


def connected(kind: int, address: str, stack: contextlib.ExitStack) -> zmq.Socket[bytes]:
    """Return a connected pyzmq socket."""
    context = stack.enter_context(zmq.Context())
    socket = stack.enter_context(context.socket(kind))
    socket.linger = 0
    socket.connect(address)
    return socket


if __name__ == "__main__":
    main(__doc__, measure)
