"""Keeps what the agents have lived through, serves batches of it, and lets them go on only as fast as is learned."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any

from roles import options
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull, ZmqServer

CAPACITY = 20_000
# From how many transitions on batches are served, and how often each is used on average. Who is ahead waits for the
# others, so how much is learned from how much does not depend on how fast the agents and the learner are.
LEAST, REUSE = 1_000, 8
SIZE_EVERY = 2_000


class Memory:
    """The last transitions. Two threads use it: one takes in, the other answers."""

    def __init__(self, random: Random, capacity: int = CAPACITY) -> None:
        self.added = self.sampled = 0
        self._random = random
        self._transitions: deque[Any] = deque(maxlen=capacity)
        self._lock = threading.Lock()

    def add(self, transitions: Iterable[Any]) -> None:
        """Take in what an agent has lived through."""
        with self._lock:
            for transition in transitions:
                self._transitions.append(transition)
                self.added += 1

    def batch(self, size: int) -> list[Any]:
        """Transitions chosen evenly; none as long as there are too few, or too few new ones."""
        with self._lock:
            if self.added < LEAST or self.sampled + size > REUSE * self.added:
                return []
            self.sampled += size
            return self._random.choices(self._transitions, k=size)

    def ticket(self) -> bool:
        """Whether another episode is wanted: whether what there is has been learned from."""
        with self._lock:
            return self.added < LEAST + self.sampled / REUSE

    def answer(self, message: dict[str, Any]) -> object:
        """What the learner and the agents ask for."""
        return self.batch(message["size"]) if message["what"] == "batch" else self.ticket()


def main() -> None:
    memory = Memory(Random(options.read().seed))
    with (
        ZmqServer(service="replay", serializer="json") as server,
        ZmqPull(service="experience", serializer="json") as experience,
    ):
        server.start_loop(memory.answer)
        with Member("server") as member:
            shown = 0
            for transitions in messages(experience, member):
                memory.add(transitions)
                if memory.added >= shown + SIZE_EVERY:
                    shown = memory.added
                    member.say(f"{memory.added} transitions, each used {memory.sampled / memory.added:.1f} times")


if __name__ == "__main__":
    main()
