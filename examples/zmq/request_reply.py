"""Requests and replies: a server that squares numbers and raises an error for words, and a client
that continues after this error.
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
    # With twelve attempts of five seconds each, the server can start up to a minute after the
    # client.
    with ZmqClient(service="requests", serializer="json", timeout=5, retries=11) as client:
        print("client:", [client.request(number) for number in range(10)], flush=True)
        try:
            client.request("ten")
        except ZmqRemoteError as exc:
            print(f"client: the server says {exc}", flush=True)
        # Set a long timeout, so that this request is not sent again if the reply is late. By then,
        # the server may have exited and be unable to answer a second request.
        print(f"client: {client.request('stop', timeout=60)}", flush=True)


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]]()
