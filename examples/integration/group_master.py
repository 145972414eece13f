"""Split the group's part of the interval among its workers, and send the sum of the workers'
results to the top-level master.
"""

import sys

from tree import answer, broadcast_and_reduce, split, task


def main() -> None:
    group, workers = sys.argv[1], int(sys.argv[2])
    part = task("", group)
    total = broadcast_and_reduce(
        f"{group}-", split(part, {f"{group}-{number}": 1 for number in range(workers)})
    )
    print(f"{part[0]:.2f} to {part[1]:.2f}: {total:.2f}", flush=True)
    answer("", group, total)


if __name__ == "__main__":
    main()
