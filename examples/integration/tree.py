"""Functions that send tasks down the tree and results up the tree."""

from contextlib import suppress

from symphony.addons.zmq import ZmqPub, ZmqPull, ZmqPush, ZmqSub, ZmqTimeoutError

Interval = tuple[float, float]


def broadcast_and_reduce(prefix: str, parts: dict[str, Interval]) -> float:
    """Publish the part for each child, and return the sum of the children's results.

    A subscriber misses messages that were published before it connected, so the parts are published
    repeatedly until every child has sent its result.
    """
    sums: dict[str, float] = {}
    with (
        ZmqPub(service=f"{prefix}tasks", serializer="json") as tasks,
        ZmqPull(service=f"{prefix}sums", serializer="json") as answers,
    ):
        while len(sums) < len(parts):
            tasks.send("parts", parts)
            with suppress(ZmqTimeoutError):
                name, value = answers.recv(timeout=0.02)
                sums[name] = value
    return sum(sums.values())


def task(prefix: str, name: str) -> Interval:
    """Receive the part of the interval for the child ``name`` from the parent, and return it."""
    with ZmqSub(service=f"{prefix}tasks", serializer="json", timeout=60) as tasks:
        _, parts = tasks.recv()
    begin, end = parts[name]
    return begin, end


def answer(prefix: str, name: str, value: float) -> None:
    """Send ``value``, the result of the child ``name``, to the parent."""
    with ZmqPush(service=f"{prefix}sums", serializer="json", linger=60) as sums:
        sums.send([name, value])


def split(whole: Interval, shares: dict[str, int]) -> dict[str, Interval]:
    """Divide the interval ``whole`` into adjacent parts in proportion to ``shares``."""
    begin, end = whole
    step, parts = (end - begin) / sum(shares.values()), {}
    for name, share in shares.items():
        parts[name] = (begin, begin + share * step)
        begin += share * step
    return parts
