"""Improve the parameters with the agents' transitions, and decide when the run is over.

The experiment ends with the learner: when it exits, all other processes are stopped.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from roles import options, policy
from roles.member import Log, repeated
from roles.options import Options
from roles.policy import Values
from roles.scores import WINDOW, Scores
from symphony.addons.zmq import ZmqClient, ZmqPush

BATCH = 256
# The parameters are published after every PUBLISH updates, and saved after every SAVE updates.
PUBLISH, SAVE = 10, 100
NAME = "learner"


class Learner:
    """The parameters and their version, which is the number of updates made to them."""

    def __init__(self, settings: Options) -> None:
        self._settings = settings
        self._checkpoint = settings.results / "checkpoint.json" if settings.results else None
        self.version, self.values = load(self._checkpoint)
        repeats = repeated(settings.patience)
        self._replay = ZmqClient(service="replay", serializer="json", **repeats)
        self._parameters = ZmqClient(service="parameters", serializer="json", **repeats)
        self._log = Log(NAME, settings.patience)
        self._metrics = ZmqPush(service="metrics", serializer="json", timeout=settings.patience)

    def update(self) -> bool:
        """Perform one update and return True, or return False if the replay buffer cannot provide a
        batch yet.
        """
        batch = self._replay.request({"what": "batch", "size": BATCH})
        if not batch:
            return False
        error = policy.improve(self.values, batch, max(0.1, 0.5 / (1 + self.version / 150)))
        self.version += 1
        if self.version % PUBLISH == 0:
            self.publish()
            self._metrics.send(
                {"name": NAME, "series": "learner/error", "step": self.version, "value": error}
            )
        if self.version % SAVE == 0:
            self.save()
        return True

    def publish(self) -> None:
        """Send the parameters to the parameter server."""
        rounded = [[round(value, 3) for value in row] for row in self.values]
        self._parameters.request({"what": "put", "version": self.version, "values": rounded})

    def save(self) -> None:
        """Save the parameters if there is a results directory."""
        if self._checkpoint is not None:
            write(self._checkpoint, {"version": self.version, "values": self.values})

    def log(self, text: str) -> None:
        """Send a line to the logger."""
        self._log.write(text)


def load(checkpoint: Path | None) -> tuple[int, Values]:
    """Return the version and the values of the saved parameters, or of untrained parameters if none
    are saved.
    """
    if checkpoint is None or not checkpoint.exists():
        return 0, policy.untrained()
    saved = json.loads(checkpoint.read_text())
    return saved["version"], saved["values"]


def write(path: Path, content: object) -> None:
    """Write a JSON file atomically, so that the file is never incomplete, even if the program is
    killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(content))
    scratch.replace(path)


def train(learner: Learner, scores: Scores, settings: Options) -> None:
    """Update the parameters until the run is over. The limit ``settings.updates`` applies only to
    the updates of this run, not to earlier updates that led to a loaded checkpoint. Raises
    SystemExit if no update is possible for ``settings.patience`` seconds.
    """
    began, improved = learner.version, time.monotonic()
    while settings.forever or (
        learner.version - began < settings.updates and not is_reached(scores, settings.target)
    ):
        now = time.monotonic()
        scores.receive()
        if learner.update():
            improved = now
        elif now - improved > settings.patience:
            raise SystemExit(
                f"nothing to learn from for {settings.patience:g} s: are there agents?"
            )
        else:
            time.sleep(0.01)
        time.sleep(max(0.0, now + settings.pace - time.monotonic()))


def is_reached(scores: Scores, target: float | None) -> bool:
    """Return whether the mean return of the latest `WINDOW` versions has reached the target."""
    mean = scores.mean(WINDOW)
    return target is not None and mean is not None and mean >= target


def main() -> None:
    # The checkpoint is also saved when the learner is stopped or restarted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = options.read()
    learner, scores = Learner(settings), Scores()
    began = learner.version
    print(f"version {began}, batches of {BATCH}", flush=True)
    try:
        learner.publish()
        if began == 0 and not scores.wait_for(0, settings.evaluators, settings.patience):
            learner.log("beginning without the scores of all evaluators")
        train(learner, scores, settings)
        learner.publish()
        scores.wait_for(learner.version, settings.evaluators, settings.patience)
    except KeyboardInterrupt:
        learner.save()
        raise SystemExit(128 + signal.SIGTERM) from None
    learner.save()
    learner.log(f"over after {learner.version - began} updates")
    report(learner, scores, began, settings.results)


def report(learner: Learner, scores: Scores, began: int, results: Path | None) -> None:
    """Print the result of the run, and write it to the results directory if there is one."""
    first, last = scores.first, scores.mean(1)
    if first is not None and last is not None:
        print(f"mean return {first:.1f} at first, {last:.1f} at last", flush=True)
    print(f"{learner.version - began} updates", flush=True)
    if results is not None:
        write(results / "result.json", {"first": first, "last": last, "version": learner.version})


if __name__ == "__main__":
    main()
