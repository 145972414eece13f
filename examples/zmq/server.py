"""Reply to each request with its bytes in reverse order. The program needs only pyzmq, and reads
its address from environment variables.
"""

import os

import zmq

ROUND_TRIPS = 20


def main() -> None:
    host, port = os.environ["SYMPH_EXAMPLE_BIND_HOST"], os.environ["SYMPH_EXAMPLE_PORT"]
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.rcvtimeo = 60_000
        socket.bind(f"tcp://{host}:{port}")
        print(f"listening on {host}:{port}", flush=True)
        for number in range(ROUND_TRIPS):
            request = socket.recv()
            socket.send(request[::-1])
            if number == 0:
                print(f"first request: {len(request):,} bytes", flush=True)
    print(f"answered {ROUND_TRIPS} requests", flush=True)


if __name__ == "__main__":
    main()
