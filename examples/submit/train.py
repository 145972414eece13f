"""Fit a line by gradient descent. If SIGTERM stops the program, no epoch is lost.

On SIGTERM, the program finishes the epoch, saves its state, and exits with code 75. When it is
started again, it resumes from the saved state.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

# This exit code is EX_TEMPFAIL in sysexits.h. It indicates a temporary failure: the program can be
# started again later.
NOT_DONE = 75
RATE = 0.1
SAMPLES = 100


def load(path: Path) -> dict[str, float]:
    """Return the state saved in ``path``, or the initial state if ``path`` does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"epoch": 0, "slope": 0.0, "offset": 0.0}


def save(path: Path, state: dict[str, float]) -> None:
    """Write the state atomically: even if the program is killed, the file contains either the old
    or the new state.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def train(state: dict[str, float]) -> tuple[dict[str, float], float]:
    """Return the state after one more epoch, and that epoch's loss. The samples depend only on the
    epoch's number.
    """
    chance = random.Random(state["epoch"])
    slope, offset, loss = state["slope"], state["offset"], 0.0
    for _ in range(SAMPLES):
        x = chance.uniform(-1, 1)
        error = slope * x + offset - (3 * x + 1)
        slope -= RATE * error * x
        offset -= RATE * error
        loss += error * error / SAMPLES
    return {"epoch": state["epoch"] + 1, "slope": slope, "offset": offset}, loss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.json"))
    parser.add_argument("--save-every", type=int, default=10, metavar="EPOCHS")
    parser.add_argument(
        "--pause", type=float, default=1.0, metavar="SECONDS", help="how long an epoch takes longer"
    )
    args = parser.parse_args()

    told: list[int] = []
    # The handler only records the signal, because it can interrupt any statement.
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))

    state = load(args.checkpoint)
    if state["epoch"]:
        print(f"resumed after epoch {state['epoch']}", flush=True)
    while state["epoch"] < args.epochs:
        state, loss = train(state)
        print(f"epoch {state['epoch']}: loss {loss:.6f}", flush=True)
        if told:
            save(args.checkpoint, state)
            print(f"interrupted: saved epoch {state['epoch']}", flush=True)
            return NOT_DONE
        if state["epoch"] % args.save_every == 0:
            save(args.checkpoint, state)
        time.sleep(args.pause)
    save(args.checkpoint, state)
    print(f"done: slope {state['slope']:.6f}, offset {state['offset']:.6f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
