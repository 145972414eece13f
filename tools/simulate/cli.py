"""The command line of the tool."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulate import compiled
from simulate.coverage import ACTIONS, EVENTS, PROMISES
from simulate.draw import draw_scenario
from simulate.history import run_history
from simulate.promises import Broken
from simulate.runner import Results, default_jobs, run_histories
from simulate.scenario import Scenario
from simulate.shrink import shrink, size
from simulate.world import Outcome

DEFAULT_HISTORIES = 20_000
PROGRESS_SECONDS = 2.0
_MAX_SEED = 1 << 40

DESCRIPTION = """\
Run histories of experiments in a simulated world: processes that fail, hang and leave children,
users, lost machines, late observations, and a supervisor that is killed before and after each write
and each action. The decisions and the record are those of the product. After each history, what
must always hold is checked.
"""

EXAMPLES = """\
examples:
  scripts/simulate                                   20,000 histories from a new seed
  scripts/simulate --histories 1000000 --jobs 2
  scripts/simulate --seconds 30 --seed 7
  scripts/simulate --replay 4711                     print the history of a seed, line by line
  scripts/simulate --shrink 4711                     find the smallest history that still fails
  scripts/simulate --shrink 4711 --save small.json
  scripts/simulate --replay small.json
  scripts/simulate --mutations --jobs 2              break the decisions on purpose; is it noticed?

A history depends only on its seed and on the code, so that it is the same on every machine. The
histories of a run have consecutive seeds.

exit codes: 0 no promise was broken; 1 a promise was broken; 2 wrong usage
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        if arguments.replay is not None:
            return _replay(arguments)
        if arguments.shrink is not None:
            return _shrink(arguments)
        if arguments.mutations:
            from simulate.mutations import run_mutations

            return run_mutations(
                arguments.only, histories=arguments.histories or 20_000, jobs=arguments.jobs
            )
        return _run(arguments)
    except (OSError, ValueError) as exc:
        parser.exit(2, f"simulate: {exc}\n")
    except KeyboardInterrupt:
        print("simulate: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--histories", type=int, metavar="N", help="run N histories (default: 20000)")
    add("--seconds", type=float, metavar="S", help="run histories for S seconds")
    add("--seed", type=int, help="the seed of the first history (default: a new one)")
    add("--jobs", type=int, metavar="N", help="use N processes (default: the number of cores)")
    add("--failures", type=int, default=1, metavar="N", help="stop after N failures (default: 1)")
    add("--replay", metavar="SEED|FILE", help="print one history, line by line")
    add("--shrink", metavar="SEED|FILE", help="print the smallest history that fails like this one")
    add("--save", metavar="FILE", help="with --shrink: write the smallest history to a file")
    add("--mutations", action="store_true", help="break the code in many ways, and run each")
    add("--only", action="append", metavar="NAME", help="with --mutations: only this one")
    add("--json", action="store_true", help="print the results as JSON")
    add(
        compiled.OPTION,
        action="store_true",
        help="run the same code twice as fast; compiling it takes a minute after each change",
    )
    return parser


def _run(arguments: argparse.Namespace) -> int:
    seed = random.randrange(_MAX_SEED) if arguments.seed is None else arguments.seed
    histories = arguments.histories
    if histories is None and arguments.seconds is None:
        histories = DEFAULT_HISTORIES
    print(f"seed {seed}", file=sys.stderr)
    progress = _Progress()
    results = run_histories(
        seed,
        histories=histories,
        seconds=arguments.seconds,
        jobs=arguments.jobs or default_jobs(),
        on_progress=progress.show,
        max_failures=arguments.failures,
    )
    progress.end()
    if arguments.json:
        print(json.dumps(_results_as_json(seed, results)))
    else:
        _print_results(results)
    return 1 if results.failures else 0


class _Progress:
    """A line on the standard error stream that says how far the run is."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next = 0.0

    def show(self, results: Results) -> None:
        """Print the line if the last one is old enough."""
        now = time.monotonic()
        if not self._is_terminal or now < self._next:
            return
        self._next = now + PROGRESS_SECONDS
        print(f"\r{_summary(results)}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the line."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _summary(results: Results) -> str:
    return (
        f"{results.histories:,} histories ({results.rate:,.0f}/s), {results.steps:,} decisions, "
        f"actions {_covered(ACTIONS, results.actions)}, events {_covered(EVENTS, results.events)}, "
        f"promises {_covered(PROMISES, results.promises)}, {len(results.failures)} failed"
    )


def _covered(names: Sequence[str], counts: Counter[str]) -> str:
    return f"{sum(counts[name] > 0 for name in names)}/{len(names)}"


def _print_results(results: Results) -> None:
    print(_summary(results))
    for title, names, counts in (
        ("actions", ACTIONS, results.actions),
        ("events", EVENTS, results.events),
        ("promises", PROMISES, results.promises),
    ):
        unused = [name for name in names if not counts[name]]
        if unused:
            print(f"{title} that did not occur: {', '.join(unused)}")
    for failure in results.failures:
        print(f"\nFAILED: {failure.promise}: {failure.message}")
        print(f"  scripts/simulate --replay {failure.seed}")
        print(f"  scripts/simulate --shrink {failure.seed}")


def _results_as_json(seed: int, results: Results) -> Mapping[str, Any]:
    return {
        "seed": seed,
        "histories": results.histories,
        "histories_per_second": round(results.rate, 1),
        "decisions": results.steps,
        "actions": dict(sorted(results.actions.items())),
        "events": dict(sorted(results.events.items())),
        "promises": dict(sorted(results.promises.items())),
        "failures": [
            {"seed": each.seed, "promise": each.promise, "message": each.message}
            for each in results.failures
        ],
    }


def _load(text: str) -> Scenario:
    """Return the scenario of a seed or of a file."""
    if text.isdecimal():
        return draw_scenario(int(text))
    return Scenario.from_dict(json.loads(Path(text).read_text(encoding="utf-8")))


def _replay(arguments: argparse.Namespace) -> int:
    outcome = run_history(_load(arguments.replay), tell=print)
    return _print_outcome(outcome)


def _way(broken: Broken) -> tuple[str, str]:
    """Return in which way a promise was broken, whatever the processes and the times are."""
    return broken.promise, re.sub(r"[0-9.]+", "", str(broken))


def _print_outcome(outcome: Outcome) -> int:
    if outcome.broken is None:
        print("every promise was kept")
        return 0
    print(f"FAILED: {outcome.broken.promise}: {outcome.broken}")
    return 1


def _shrink(arguments: argparse.Namespace) -> int:
    scenario = _load(arguments.shrink)
    broken = run_history(scenario).broken
    if broken is None:
        raise ValueError(f"the history {arguments.shrink} breaks no promise")

    def fails(candidate: Scenario) -> bool:
        found = run_history(candidate).broken
        return found is not None and _way(found) == _way(broken)

    smallest = shrink(scenario, fails)
    print(f"from {size(scenario)} to {size(smallest)} parts", file=sys.stderr)
    if arguments.save:
        text = json.dumps(smallest.to_dict(), indent=1)
        Path(arguments.save).write_text(text + "\n", encoding="utf-8")
        print(f"replay it with: scripts/simulate --replay {arguments.save}", file=sys.stderr)
    return _print_outcome(run_history(smallest, tell=print))
