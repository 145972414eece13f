"""Topics: a subscriber receives messages on one of two topics, and then sends an acknowledged
message as confirmation.

A subscriber misses messages that were published before it connected, so the publisher continues to
publish until it receives the confirmation.
"""

import itertools
import sys

from symphony.addons.zmq import ZmqPub, ZmqReceiver, ZmqSender, ZmqSub, ZmqTimeoutError

WANTED = 3


def publisher() -> None:
    with (
        ZmqPub(service="topics", serializer="json") as pub,
        ZmqReceiver(service="thanks", serializer="str") as thanks,
    ):
        for version in itertools.count():
            pub.send("loss", 1 / (version + 1))
            pub.send("weights", {"version": version})
            try:
                print(f"publisher: {thanks.recv(timeout=0.02)}", flush=True)
            except ZmqTimeoutError:
                continue
            break


def subscriber() -> None:
    with (
        ZmqSub(service="topics", serializer="json", topics="weights", timeout=60) as sub,
        ZmqSender(service="thanks", serializer="str", timeout=60) as thanks,
    ):
        taken = [sub.recv() for _ in range(WANTED)]
        versions = [weights["version"] for topic, weights in taken if topic == "weights"]
        in_order = versions == list(range(versions[0], versions[0] + WANTED))
        print(f"subscriber: {len(versions)} versions of weights, in order: {in_order}", flush=True)
        thanks.send("thanks")


if __name__ == "__main__":
    {"publisher": publisher, "subscriber": subscriber}[sys.argv[1]]()
