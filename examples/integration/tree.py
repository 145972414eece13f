"""What every knot of the tree does: hand a task to those below and add up what they send back."""

from contextlib import suppress

from symphony.addons.zmq import ZmqPub, ZmqPull, ZmqPush, ZmqSub, ZmqTimeoutError

Interval = tuple[float, float]


def broadcast_and_reduce(prefix: str, parts: dict[str, Interval]) -> float:
    """Publish which part is whose, and return the sum of what they send back.

    What is published before a subscriber has connected is not for it, so this goes on until all have answered.
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
    """The part of the one of that name."""
    with ZmqSub(service=f"{prefix}tasks", serializer="json", timeout=60) as tasks:
        _, parts = tasks.recv()
    begin, end = parts[name]
    return begin, end


def answer(prefix: str, name: str, value: float) -> None:
    """Send a sum up."""
    with ZmqPush(service=f"{prefix}sums", serializer="json", linger=60) as sums:
        sums.send([name, value])


def split(whole: Interval, shares: dict[str, int]) -> dict[str, Interval]:
    """Parts of an interval, as large as their shares of it, side by side."""
    begin, end = whole
    step, parts = (end - begin) / sum(shares.values()), {}
    for name, share in shares.items():
        parts[name] = (begin, begin + share * step)
        begin += share * step
    return parts
