"""The environment: a maze with a slippery floor. Every step costs 1 until the goal is reached. The
module performs no I/O.

A state is the number of a free cell. An action is the number of a direction (up, right, down,
left).
"""

from __future__ import annotations

from random import Random

MAP = """
S..#......
.#.#.####.
.#...#....
.#####.##.
...#...#..
.#...#.#.#
.###.#.#..
...#.#.##.
.#...#....
.#.#...##G
"""
ROWS = MAP.split()
CELLS = [(y, x) for y, row in enumerate(ROWS) for x, mark in enumerate(row) if mark != "#"]
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
STATES, ACTIONS = len(CELLS), len(MOVES)
LIMIT = 100
SLIP = 0.1

_NUMBER = {cell: number for number, cell in enumerate(CELLS)}
START = next(number for number, (y, x) in enumerate(CELLS) if ROWS[y][x] == "S")
GOAL = next(number for number, (y, x) in enumerate(CELLS) if ROWS[y][x] == "G")
# The next state for each state and action. A step into a wall leads back to the same state.
_NEXT = [
    [_NUMBER.get((y + dy, x + dx), number) for dy, dx in MOVES]
    for number, (y, x) in enumerate(CELLS)
]


def step(state: int, action: int, random: Random) -> tuple[int, float, bool]:
    """Return the next state, the reward, and whether the next state is the goal. With probability
    `SLIP`, the step takes a random direction instead.
    """
    if random.random() < SLIP:
        action = random.randrange(ACTIONS)
    state = _NEXT[state][action]
    return state, -1.0, state == GOAL
