"""Store the agents' transitions, serve batches of them to the learner, and limit the agents to the
learner's pace.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from roles import checks, maze
from roles.member import Member, messages
from symphony.addons.zmq import ZmqPull, ZmqServer

CAPACITY = 20_000
# How many transitions the agents can be ahead of the learner, and how often each transition is used
# on average. The side that is ahead waits for the other, so the ratio of transitions to updates
# does not depend on the speed of the agents and the learner.
LEAST, REUSE = 1_000, 8
# Batches are served once this many transitions have been added. The number is less than LEAST,
# because a lost episode at the start would otherwise make every process wait.
FIRST = 500
SIZE_EVERY = 2_000
# A permitted episode that has not arrived after this many seconds is considered lost: its agent has
# probably exited.
LOST = 30.0


class Memory:
    """The most recent transitions. Two threads use the memory: one adds transitions, and the other
    answers requests.

    Until a permitted episode arrives, it counts as an episode of the maximum length. This rule
    limits the number of episodes that are waiting in queues or on the network between the agents
    and this process. The limit is necessary because such episodes were played with old parameters.
    """

    def __init__(
        self, random: Random, capacity: int = CAPACITY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.added = self.sampled = 0
        self._random, self._clock = random, clock
        self._transitions: deque[Any] = deque(maxlen=capacity)
        # For each permitted episode that has not arrived yet, the time at which it was permitted.
        self._expected: deque[float] = deque()
        self._lock = threading.Lock()

    def add(self, transitions: Iterable[Any]) -> None:
        """Add the transitions of an agent's episode."""
        with self._lock:
            if self._expected:
                self._expected.popleft()
            for transition in transitions:
                self._transitions.append(transition)
                self.added += 1

    def batch(self, size: int) -> list[Any]:
        """Return ``size`` randomly chosen transitions, or an empty list if there are too few
        transitions or if they have been used too often.
        """
        with self._lock:
            if self.added < FIRST or self.sampled + size > REUSE * self.added:
                return []
            self.sampled += size
            return self._random.choices(self._transitions, k=size)

    def ticket(self) -> bool:
        """Permit another episode if the agents are not too far ahead of the learner, and return
        whether it is permitted.
        """
        with self._lock:
            now = self._clock()
            while self._expected and now - self._expected[0] > LOST:
                self._expected.popleft()
            wanted = self.added + maze.LIMIT * len(self._expected) < LEAST + self.sampled / REUSE
            if wanted:
                self._expected.append(now)
            return wanted

    def answer(self, message: dict[str, Any]) -> object:
        """Answer a request: the learner requests batches, and agents request permission to play an
        episode.
        """
        is_batch = checks.replay_request(message)["what"] == "batch"
        return self.batch(message["size"]) if is_batch else self.ticket()


def main() -> None:
    member = Member()
    memory = Memory(Random(member.options.seed))
    with (
        ZmqServer(service="replay", serializer="json") as server,
        ZmqPull(service="experience", serializer="json") as experience,
    ):
        server.start_loop(memory.answer)
        shown = 0
        for transitions in messages(experience, checks.transitions):
            memory.add(transitions)
            if memory.added >= shown + SIZE_EVERY:
                shown = memory.added
                uses = memory.sampled / memory.added
                member.log(f"{memory.added} transitions, each used {uses:.1f} times")


if __name__ == "__main__":
    main()
