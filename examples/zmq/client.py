"""Send twenty requests, check each reply, and print the amount of transferred data, the median
round-trip time and the data rate.
"""

import os
import statistics
import time

import zmq

ROUND_TRIPS = 20
SIZE = 100_000


def main() -> None:
    address = os.environ["SYMPH_EXAMPLE_ADDR"]
    times = []
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.rcvtimeo = 60_000
        socket.linger = 0
        # This timeout is in ms. If a client connects before a Kubernetes Service knows its Pod, the
        # connection attempt can remain unanswered for minutes. The timeout makes ZeroMQ try again.
        socket.connect_timeout = 1_500
        socket.connect(f"tcp://{address}")
        print(f"connected to {address}", flush=True)
        for number in range(ROUND_TRIPS):
            request = bytes([number]) + os.urandom(SIZE - 1)
            began = time.perf_counter()
            socket.send(request)
            answer = socket.recv()
            times.append(time.perf_counter() - began)
            if answer != request[::-1]:
                raise SystemExit(f"round trip {number + 1}: a wrong answer")
            print(f"round trip {number + 1:2}: {1000 * times[-1]:8.3f} ms", flush=True)
    moved = 2 * SIZE * ROUND_TRIPS / 1e6
    median = statistics.median(times)
    rate = 2 * SIZE / median / 1e6
    print(
        f"{ROUND_TRIPS} round trips, {moved:g} MB moved, "
        f"median {1000 * median:.3f} ms, {rate:,.0f} MB/s",
        flush=True,
    )


if __name__ == "__main__":
    main()
