"""Integrate x^2 over this worker's part of the interval with the midpoint rule, and send the result
to the parent process.
"""

import os
import sys

from tree import answer, task

STEPS = 50_000


def integral(begin: float, end: float) -> float:
    width = (end - begin) / STEPS
    return width * sum((begin + (step + 0.5) * width) ** 2 for step in range(STEPS))


def main() -> None:
    group, name = sys.argv[1], os.environ["SYMPHONY_ROLE"]
    begin, end = task(f"{group}-", name)
    value = integral(begin, end)
    print(f"{begin:.2f} to {end:.2f}: {value:.2f}", flush=True)
    answer(f"{group}-", name, value)


if __name__ == "__main__":
    main()
