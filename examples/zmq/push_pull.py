"""Distributed work: a pusher sends a thousand numbers, and a puller adds them up."""

import sys

from symphony.addons.zmq import ZmqPull, ZmqPush

COUNT = 1000


def puller() -> None:
    with ZmqPull(service="work", serializer="json", timeout=60) as pull:
        print(f"puller: {sum(pull.recv() for _ in range(COUNT))}", flush=True)


def pusher() -> None:
    with ZmqPush(service="work", serializer="json", timeout=60, linger=60) as push:
        for number in range(COUNT):
            push.send(number)
    print(f"pusher: sent {COUNT}", flush=True)


if __name__ == "__main__":
    {"puller": puller, "pusher": pusher}[sys.argv[1]]()
