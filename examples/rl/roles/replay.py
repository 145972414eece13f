"""Keeps what the agents have lived through, serves batches of it, and lets them go on only as fast as is learned."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from roles import maze, options
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull, ZmqServer

CAPACITY = 20_000
# How many transitions the agents may be ahead, and how often each is used on average. Who is ahead waits for the
# others, so how much is learned from how much does not depend on how fast the agents and the learner are.
LEAST, REUSE = 1_000, 8
# From how many on batches are served: fewer, or at the beginning all would wait for one episode that never comes.
FIRST = 500
SIZE_EVERY = 2_000
# An episode that was given leave and has not come after so many seconds will not: its agent has ended.
LOST = 30.0


class Memory:
    """The last transitions. Two threads use it: one takes in, the other answers.

    Leave for an episode counts as if the longest one had come, until one comes: between an agent and this there are
    queues and perhaps a network, and all that waits in them was played with the parameters of long ago.
    """

    def __init__(
        self, random: Random, capacity: int = CAPACITY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.added = self.sampled = 0
        self._random, self._clock = random, clock
        self._transitions: deque[Any] = deque(maxlen=capacity)
        # When leave was given for each episode that has not come yet.
        self._expected: deque[float] = deque()
        self._lock = threading.Lock()

    def add(self, transitions: Iterable[Any]) -> None:
        """Take in an episode that an agent has lived through."""
        with self._lock:
            if self._expected:
                self._expected.popleft()
            for transition in transitions:
                self._transitions.append(transition)
                self.added += 1

    def batch(self, size: int) -> list[Any]:
        """Transitions chosen evenly; none as long as there are too few, or too few new ones."""
        with self._lock:
            if self.added < FIRST or self.sampled + size > REUSE * self.added:
                return []
            self.sampled += size
            return self._random.choices(self._transitions, k=size)

    def ticket(self) -> bool:
        """Leave for another episode, if one is wanted: if what there is, and is to come, will be learned from."""
        with self._lock:
            now = self._clock()
            while self._expected and now - self._expected[0] > LOST:
                self._expected.popleft()
            wanted = self.added + maze.LIMIT * len(self._expected) < LEAST + self.sampled / REUSE
            if wanted:
                self._expected.append(now)
            return wanted

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
                    member.say(
                        f"{memory.added} transitions, each used {memory.sampled / memory.added:.1f} times"
                    )


if __name__ == "__main__":
    main()
