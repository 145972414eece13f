"""Measure the newest parameters: the mean return of episodes without noise, one from each start
state.
"""

from __future__ import annotations

from random import Random

from roles import maze, options, policy
from roles.member import BEAT, Member
from roles.newest import Newest

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
    member.score(newest.version, mean)


def main() -> None:
    # `Newest` waits for parameters, so this evaluator enrols only when they are available. Training
    # starts when all members have enrolled, so the initial parameters are measured as well.
    newest = Newest(options.read().patience)
    with Member("worker") as member:
        random = Random(f"{member.options.seed} {member.name}")
        measure(newest, member, random)
        while not member.over:
            if newest.follow(BEAT):
                measure(newest, member, random)
        if newest.fetch():
            measure(newest, member, random)


if __name__ == "__main__":
    main()
