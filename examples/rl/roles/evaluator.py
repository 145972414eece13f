"""Measure the newest parameters: the mean return of episodes without noise, one from each start
state.
"""

from __future__ import annotations

from random import Random

from roles import maze, policy
from roles.member import Member
from roles.newest import Newest

# The longest wait for the announcement of a new version, in seconds.
BEAT = 0.2

STARTS = [state for state in range(maze.STATES) if state != maze.GOAL]


def measure(newest: Newest, member: Member, random: Random) -> None:
    """Measure the parameters in ``newest``, and report the result to the learner, the recorder, the
    page and the logger.
    """
    episodes = {start: policy.play(newest.values, start, 0.0, random) for start in STARTS}
    mean = sum(episode.total for episode in episodes.values()) / len(episodes)
    member.measure("evaluation/return", newest.version, mean)
    member.send("screen", {"path": episodes[maze.START].path, "name": member.name})
    member.log(f"version {newest.version}: mean return {mean:.1f}")
    member.send("scores", {"version": newest.version, "value": mean})


def main() -> None:
    member = Member()
    newest = Newest(member.options.patience)
    random = Random(f"{member.options.seed} {member.name}")
    while True:
        measure(newest, member, random)
        while not newest.follow(BEAT):
            pass


if __name__ == "__main__":
    main()
