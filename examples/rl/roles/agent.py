"""Play episodes with the newest parameters and some noise, and send the transitions to the replay
buffer.
"""

from __future__ import annotations

import time
from random import Random

from roles import policy
from roles.member import Member, repeated
from roles.newest import Newest
from symphony.addons.zmq import ZmqClient

SHOW = 20
# The noise differs between agents, so that some agents explore while others refine their path.
NOISES = (0.05, 0.1, 0.2, 0.4)


class Agent:
    """An agent that plays one episode after another."""

    def __init__(self, member: Member) -> None:
        patience = member.options.patience
        self._member = member
        self._newest = Newest(patience)
        self._replay = ZmqClient(service="replay", serializer="json", **repeated(patience))
        self._starts = ZmqClient(service="starts", serializer="json", **repeated(patience))
        self._noise = NOISES[member.number % len(NOISES)]
        self._random = Random(f"{member.options.seed} {member.name}")
        self._last: dict[str, object] = {}
        self.episodes = 0

    def live(self) -> None:
        """Play one episode after another until the process is stopped."""
        self._member.log(f"begins at version {self._newest.version}, noise {self._noise}")
        while True:
            if self._replay.request({"what": "ticket"}):
                self._play()
            else:
                time.sleep(0.02)

    def _play(self) -> None:
        self._newest.follow()
        start = self._starts.request(self._last)
        episode = policy.play(self._newest.values, start, self._noise, self._random)
        self._last = {"start": start, "reached": episode.reached}
        self._member.send("experience", episode.transitions)
        self._member.measure("agents/return", self._newest.version, episode.total)
        if self.episodes % SHOW == 0:
            self._member.send("screen", {"path": episode.path, "name": self._member.name})
        self.episodes += 1


def main() -> None:
    Agent(Member()).live()


if __name__ == "__main__":
    main()
