"""Let the workers add some numbers, and print the sum of the results."""

import sys

from celery import group
from tasks import add

TIMEOUT_SECONDS = 120


def main() -> None:
    tasks, seconds = int(sys.argv[1]), float(sys.argv[2])
    print("sending", tasks, "tasks", flush=True)
    results = group(add.s(number, number, seconds) for number in range(tasks))()
    print("sum", sum(results.get(timeout=TIMEOUT_SECONDS)), flush=True)


main()
