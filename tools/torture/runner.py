"""Running rounds of the trials until the time is over."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from torture import checks
from torture.children import Child
from torture.trial import Trial
from torture.workspace import KUBE, MOMENTS, Violation, Workspace

# A round that takes longer is stopped and counts as failed.
ROUND_TIMEOUT_SECONDS = 600.0
# A stopped round needs this time at most to kill what it has started.
_CLEANUP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Failure:
    """A round in which an invariant was violated.

    ``directory`` contains the run directories and the output of all commands of the round.
    """

    trial: str
    backend: str
    seed: int
    violation: str
    directory: str
    quick: bool

    @property
    def command(self) -> str:
        """Return the command that repeats the round."""
        quick = " --quick" if self.quick else ""
        return (
            f"scripts/torture --only {self.trial} --backend {self.backend} --seed {self.seed} "
            f"--rounds 1{quick}"
        )


@dataclass(slots=True)
class Tally:
    """The results of one trial on one backend."""

    trial: str
    backend: str
    rounds: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Moments:
    """The moments at which the commands of one verb were interrupted, by what was interrupted.

    ``violations`` counts the rounds that have failed after the interruption.
    """

    verb: str
    backend: str
    counts: dict[str, int] = field(default_factory=dict)
    violations: int = 0


@dataclass(slots=True)
class Results:
    """The results of all rounds.

    ``moments`` maps backends and verbs to the moments of their interruptions.
    ``skipped`` maps the trials that cannot run on this machine to the reasons.
    """

    seed: int
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    moments: dict[tuple[str, str], Moments] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Return the number of all rounds."""
        return sum(tally.rounds for tally in self.tallies.values())

    def add_moments(self, backend: str, path: Path, *, is_violated: bool) -> None:
        """Count the interruptions of a round. If the round has failed, the last one was the cause.

        ``path`` is the file in which the round has recorded them.
        """
        lines = path.read_text().splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            verb, _, interrupted = line.partition("\t")
            moments = self.moments.setdefault((backend, verb), Moments(verb, backend))
            moments.counts[interrupted] = moments.counts.get(interrupted, 0) + 1
            if is_violated and number == len(lines):
                moments.violations += 1

    def to_dict(self) -> dict[str, object]:
        """Return the results as JSON-serializable values."""
        return {
            "seed": self.seed,
            "trials": [asdict(tally) for tally in self.tallies.values()],
            "moments": [asdict(item) for item in self.moments.values()],
            "failures": [{**asdict(item), "command": item.command} for item in self.failures],
            "skipped": self.skipped,
        }


@dataclass(slots=True)
class _Round:
    """A round that is running in a child process."""

    trial: Trial
    backend: str
    seed: int
    directory: Path
    child: Child


@dataclass(slots=True)
class Runner:
    """Runs rounds of trials, ``jobs`` at the same time.

    ``trials`` contains each trial with the backends on which it can run. Round number n uses the
    seed ``seed + n``, so that each round can be repeated alone.
    """

    trials: Sequence[tuple[Trial, Sequence[str]]]
    results: Results
    directory: Path
    jobs: int
    quick: bool
    report: Callable[[Results], None]
    report_failure: Callable[[Failure], None]

    def run(self, *, seconds: float, rounds: int | None) -> None:
        """Run ``rounds`` rounds of each trial, or as many rounds as fit into ``seconds``."""
        deadline = time.monotonic() + seconds
        waiting = self._order(rounds)
        running: list[_Round] = []
        try:
            while True:
                is_over = rounds is None and time.monotonic() > deadline
                while len(running) < self.jobs and not is_over:
                    following = next(waiting, None)
                    if following is None:
                        break
                    running.append(self._start(*following))
                if not running:
                    return
                time.sleep(_POLL_SECONDS)
                running = [item for item in running if not self._finish(item)]
                self.report(self.results)
        finally:
            for item in running:
                item.child.send(signal.SIGTERM)
            for item in running:
                item.child.wait(_CLEANUP_TIMEOUT_SECONDS)

    def _order(self, rounds: int | None) -> Iterator[tuple[Trial, str, int]]:
        """Yield the trial, the backend and the seed of each round."""
        seed = self.results.seed
        if rounds is not None:
            for number in range(rounds):
                for index, (trial, backends) in enumerate(self.trials):
                    # Neighbouring trials and following rounds use different backends.
                    yield trial, backends[(index + number) % len(backends)], seed
                    seed += 1
            return
        choices = random.Random(seed)
        while True:
            trial, backends = choices.choice(self.trials)
            yield trial, choices.choice(backends), seed
            seed += 1

    def _start(self, trial: Trial, backend: str, seed: int) -> _Round:
        directory = self.directory / f"{seed}"
        directory.mkdir()
        function = partial(run_round, trial, backend, seed, directory, quick=self.quick)
        child = Child(function, directory / "round")
        return _Round(trial, backend, seed, directory, child)

    def _finish(self, item: _Round) -> bool:
        """Record the result of a round. Return False if the round is still running."""
        seconds = time.monotonic() - item.child.started
        violation = ""
        if item.child.poll() is None:
            if seconds < checks.on_busy_machine(ROUND_TIMEOUT_SECONDS):
                return False
            item.child.send(signal.SIGTERM)
            item.child.wait(_CLEANUP_TIMEOUT_SECONDS)
            violation = f"the round was stopped after {seconds:.0f} s"
        elif item.child.poll() != 0:
            violation = (item.child.output or item.child.errors).strip()
        key = (item.trial.name, item.backend)
        tally = self.results.tallies.setdefault(key, Tally(*key))
        tally.rounds += 1
        tally.seconds += seconds
        moments = item.directory / MOMENTS
        self.results.add_moments(item.backend, moments, is_violated=bool(violation))
        if not violation:
            shutil.rmtree(item.directory)
            return True
        tally.failures += 1
        place = str(item.directory)
        failure = Failure(*key, item.seed, violation, place, self.quick)
        self.results.failures.append(failure)
        self.report_failure(failure)
        return True


def run_round(trial: Trial, backend: str, seed: int, directory: Path, *, quick: bool) -> int:
    """Run one round and check the invariants. Print the violations, and return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    with _create_workspace(backend, seed, directory, quick=quick) as workspace:
        try:
            trial.run(workspace)
            workspace.check_end()
        except Violation as exc:
            print(exc)
        except Exception:
            # An error in the trial itself, or in the library that it calls.
            print(traceback.format_exc())
        else:
            return 0
        details = {str(found): found.run_id for found in workspace.processes()}
        (directory / "processes.json").write_text(json.dumps(details, indent=1))
        _keep_state(workspace)
        return 1


def _create_workspace(backend: str, seed: int, directory: Path, *, quick: bool) -> Workspace:
    if backend == KUBE:
        from torture.kube_workspace import KubeWorkspace

        return KubeWorkspace(seed, directory, quick=quick)
    return Workspace(backend, seed, directory, quick=quick)


def _keep_state(workspace: Workspace) -> None:
    """Copy the run directories, because a mounted disk is unmounted after the round."""
    source = workspace.root.parent
    if os.path.ismount(source):
        shutil.copytree(source, source.with_name("state-copy"), ignore=_ignore_special_files)


def _ignore_special_files(directory: str, names: list[str]) -> list[str]:
    paths = {name: Path(directory, name) for name in names}
    return [name for name, path in paths.items() if not path.is_file() and not path.is_dir()]


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)
