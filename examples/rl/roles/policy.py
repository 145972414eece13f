"""The parameters, the actions that they select, and their updates. The parameters are a table with
a value for each state and action. The module performs no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from roles import maze

DISCOUNT = 0.98

Values = list[list[float]]
# The elements are state, action, reward, next state, and whether the next state is the goal.
Transition = tuple[int, int, float, int, bool]


def untrained() -> Values:
    """Return the initial parameters."""
    return [[0.0] * maze.ACTIONS for _ in range(maze.STATES)]


def greedy(row: Sequence[float]) -> int:
    """Return the action with the highest value in a state's ``row``, or the first of several such
    actions.
    """
    return max(range(len(row)), key=row.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode that ends at the goal or after the maximum number of steps. ``total`` is the sum
    of its rewards.
    """

    transitions: list[Transition]
    total: float
    reached: bool

    @property
    def path(self) -> list[int]:
        """The visited states in order."""
        return [self.transitions[0][0], *(transition[3] for transition in self.transitions)]


def play(values: Values, start: int, noise: float, random: Random) -> Episode:
    """Play one episode. Each action is random with probability ``noise``."""
    state, total, reached = start, 0.0, False
    transitions: list[Transition] = []
    while len(transitions) < maze.LIMIT and not reached:
        action = (
            random.randrange(maze.ACTIONS) if random.random() < noise else greedy(values[state])
        )
        following, reward, reached = maze.step(state, action, random)
        transitions.append((state, action, reward, following, reached))
        state, total = following, total + reward
    return Episode(transitions=transitions, total=total, reached=reached)


def improve(values: Values, batch: Sequence[Sequence[Any]], rate: float) -> float:
    """Update the values with a batch of transitions (Q-learning, learning rate ``rate``), and
    return the mean absolute error.
    """
    errors = 0.0
    for state, action, reward, following, reached in batch:
        target = reward if reached else reward + DISCOUNT * max(values[following])
        error = target - values[state][action]
        values[state][action] += rate * error
        errors += abs(error)
    return errors / len(batch)
