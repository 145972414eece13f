"""Requests and replies: a server that squares numbers and fails for words, and a client that
continues after a failure.
"""

import sys

from symphony.addons.zmq import ZmqClient, ZmqRemoteError, ZmqServer


def server() -> None:
    with ZmqServer(service="requests", serializer="json") as server:

        def square(number: object) -> object:
            if number == "stop":
                server.stop()
                return "bye"
            if not isinstance(number, int):
                raise TypeError(f"cannot square {number!r}")
            return number**2

        server.start_loop(square, blocking=True)
    print("server: stopped", flush=True)


def client() -> None:
    # One attempt of five seconds and eleven more attempts are enough even if the server starts much
    # later.
    with ZmqClient(service="requests", serializer="json", timeout=5, retries=11) as client:
        print("client:", [client.request(number) for number in range(10)], flush=True)
        try:
            client.request("ten")
        except ZmqRemoteError as exc:
            print(f"client: the server says {exc}", flush=True)
        # This request is sent only once. If the reply is late, the server has already exited and
        # cannot answer again.
        print(f"client: {client.request('stop', timeout=60)}", flush=True)


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]]()
