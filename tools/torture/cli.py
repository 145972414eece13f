"""The command line of the tool."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from torture.runner import Failure, Results, Runner
from torture.trial import Trial
from torture.trials import TRIALS
from torture.workspace import KUBE, LOCAL, TMUX

DEFAULT_SECONDS = 600.0
PROGRESS_SECONDS = 10.0
_MAX_SEED = 1_000_000
_INTERRUPTING_SIGNALS = (signal.SIGINT, signal.SIGTERM)

DESCRIPTION = """\
Kill, signal and overload symphony at random moments, on local processes and in tmux, and check
after each round that nothing is lost or left behind.
"""

EXAMPLES = """\
examples:
  scripts/torture                                  all trials in random order for ten minutes
  scripts/torture --seconds 28800 --jobs 4         four rounds at a time for a night
  scripts/torture --list                           describe the trials
  scripts/torture --only kill-launcher --only daemons --backend local
  scripts/torture --only signals --backend tmux --seed 4711 --rounds 1
                                                   repeat a round that has failed

The seed determines all random decisions. What the other programs are doing at the moment of a kill
also depends on the machine, so a failure may need several repetitions.

exit codes: 0 no invariant was violated; 1 at least one was violated; 2 wrong usage
"""


def main(argv: Sequence[str]) -> int:
    """Run the trials and return the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.list:
        _print_trials()
        return 0
    for number in _INTERRUPTING_SIGNALS:
        signal.signal(number, _interrupt)
    chosen = [TRIALS[name] for name in arguments.only or TRIALS]
    backends = arguments.backend or [LOCAL, TMUX]
    results = Results(arguments.seed)
    runnable = _runnable(chosen, backends, results)
    for name, reason in results.skipped.items():
        print(f"NOT TESTED: {name}: {reason}", file=sys.stderr)
    if not runnable:
        print("torture: no trial can run here", file=sys.stderr)
        return 2
    _import_everything()
    # The path of a tmux socket may have only about 100 characters.
    directory = Path(tempfile.mkdtemp(prefix="symphony-torture-", dir="/tmp"))
    print(f"seed {arguments.seed}, directory {directory}", file=sys.stderr)
    progress = _Progress()
    runner = Runner(
        runnable, results, directory, arguments.jobs, arguments.quick, progress.show, _print_failure
    )
    try:
        runner.run(seconds=arguments.seconds, rounds=arguments.rounds)
    except KeyboardInterrupt:
        print("torture: interrupted", file=sys.stderr)
    if not results.failures:
        shutil.rmtree(directory)
    if arguments.json:
        print(json.dumps(results.to_dict(), indent=1))
    else:
        _print_table(results)
    return 1 if results.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds",
        type=_positive_number,
        default=DEFAULT_SECONDS,
        help=f"start rounds for this time (default: {DEFAULT_SECONDS:g})",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        help="run this number of rounds of each trial, on its backends in turn",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(_MAX_SEED),
        help="the seed of the first round (default: a random seed, which is printed)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(TRIALS),
        metavar="NAME",
        help="run only this trial; repeatable",
    )
    parser.add_argument(
        "--backend",
        action="append",
        choices=[LOCAL, TMUX, KUBE],
        help="use only this backend; repeatable. kube is used only on request",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        help="run this number of rounds at the same time (default: the number of processors)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="use as few processes, programs and lines as possible"
    )
    parser.add_argument("--list", action="store_true", help="describe the trials and exit")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return number


def _runnable(
    chosen: Sequence[Trial], backends: Sequence[str], results: Results
) -> list[tuple[Trial, Sequence[str]]]:
    """Return the trials with the backends on which they can run here.

    Record why they cannot run on the others.
    """
    runnable: list[tuple[Trial, Sequence[str]]] = []
    for trial in chosen:
        possible = []
        for backend in [name for name in trial.backends if name in backends]:
            obstacle = trial.obstacle_on(backend)
            if obstacle:
                results.skipped[f"{trial.name} ({backend})"] = obstacle
            else:
                possible.append(backend)
        if possible:
            runnable.append((trial, possible))
    return runnable


def _import_everything() -> None:
    """Import the modules that most commands need, so that forked commands start quickly."""
    import symphony.commandline
    import symphony.model.document.files
    import symphony.supervised.preflight
    import symphony.supervised.resources.gpus
    import symphony.supervised.supervisor.handover
    import symphony.supervised.user_requests.stop
    from symphony import Cluster

    for backend in (LOCAL, TMUX):
        Cluster.new(backend)
    del symphony


class _Progress:
    """Prints the number of rounds from time to time."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def show(self, results: Results) -> None:
        """Print a line if the last one is old enough."""
        now = time.monotonic()
        if now - self._printed < PROGRESS_SECONDS:
            return
        self._printed = now
        counts: dict[str, int] = {}
        for tally in results.tallies.values():
            counts[tally.trial] = counts.get(tally.trial, 0) + tally.rounds
        parts = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        summary = f"{results.rounds} rounds, {len(results.failures)} failures"
        print(f"{summary}: {parts}", file=sys.stderr, flush=True)


def _print_failure(failure: Failure) -> None:
    lines = failure.violation.splitlines() or ["the round died without a message"]
    print(f"FAILED {failure.trial} ({failure.backend}), seed {failure.seed}:", file=sys.stderr)
    for line in lines:
        print(f"    {line}", file=sys.stderr)
    print(f"  state: {failure.directory}", file=sys.stderr)
    print(f"  repeat with: {failure.command}", file=sys.stderr, flush=True)


def _print_trials() -> None:
    width = max(len(name) for name in TRIALS)
    for trial in TRIALS.values():
        print(f"{trial.name:{width}}  {trial.description}  ({', '.join(trial.backends)})")


def _print_table(results: Results) -> None:
    width = max((len(name) for name, _ in results.tallies), default=5)
    print(f"{'TRIAL':{width}}  BACKEND  ROUNDS  FAILURES  SECONDS/ROUND")
    for key in sorted(results.tallies):
        tally = results.tallies[key]
        mean = tally.seconds / tally.rounds
        print(
            f"{tally.trial:{width}}  {tally.backend:7}  {tally.rounds:6}  {tally.failures:8}  "
            f"{mean:13.2f}"
        )
    if results.moments:
        _print_moments(results)
    print(f"seed {results.seed}: {results.rounds} rounds, {len(results.failures)} failures")


def _print_moments(results: Results) -> None:
    print("INTERRUPTED  BACKEND  MOMENTS  VIOLATIONS  WHAT")
    for key in sorted(results.moments):
        moments = results.moments[key]
        total = sum(moments.counts.values())
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(moments.counts.items()))
        print(
            f"{moments.verb:11}  {moments.backend:7}  {total:7}  {moments.violations:10}  {kinds}"
        )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The running rounds kill everything that they have started, and must not be interrupted again.
    for number in _INTERRUPTING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
