"""Split the interval among the groups in proportion to their numbers of workers, and print the
integral.
"""

import sys

from tree import broadcast_and_reduce, split

WHOLE = (0.0, 10.0)


def main() -> None:
    workers = {
        name: int(count) for name, _, count in (word.partition("=") for word in sys.argv[1:])
    }
    total = broadcast_and_reduce("", split(WHOLE, workers))
    print(f"{total:.2f}", flush=True)


if __name__ == "__main__":
    main()
