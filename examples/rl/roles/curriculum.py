"""Choose the start states of episodes. States from which agents often miss the goal are chosen more
often.
"""

from __future__ import annotations

from random import Random
from typing import Any

from roles import checks, maze
from roles.member import Member
from symphony.addons.zmq import ZmqServer

# The weight of the newest episode in the moving average of a start state's success rate.
NEW = 0.2
# After this many episodes, the success rate is logged again.
LOG_EVERY = 100


class Curriculum:
    """A record of how often agents reach the goal from each start state."""

    def __init__(self, random: Random) -> None:
        self.episodes = 0
        self._random = random
        self._starts = [state for state in range(maze.STATES) if state != maze.GOAL]
        self._reached = dict.fromkeys(self._starts, 0.0)

    @property
    def reached(self) -> float:
        """The fraction of recent episodes that reached the goal, averaged over all start states."""
        return sum(self._reached.values()) / len(self._reached)

    def answer(self, message: dict[str, Any]) -> int:
        """Record the result of an agent's last episode, if there was one, and return the start
        state of the agent's next episode.
        """
        start = checks.last_episode(message).get("start")
        if start is not None:
            self.episodes += 1
            self._reached[start] += NEW * (message["reached"] - self._reached[start])
        weights = [1.1 - self._reached[start] for start in self._starts]
        return self._random.choices(self._starts, weights)[0]


def main() -> None:
    member = Member()
    curriculum = Curriculum(Random(member.options.seed))

    def answer(message: dict[str, Any]) -> int:
        start = curriculum.answer(message)
        if message and curriculum.episodes % LOG_EVERY == 0:
            member.log(
                f"{curriculum.episodes} episodes; at last {curriculum.reached:.0%} reached the goal"
            )
        return start

    with ZmqServer(service="starts", serializer="json") as server:
        server.start_loop(answer, blocking=True)


if __name__ == "__main__":
    main()
