"""Helpers for all benchmarks: measure in turns, compare with a target, and print the result.

Measurements on a shared machine are noisy, the noise changes over time, and each measurement
affects the next one. The programs that are compared (the sides) are therefore measured in turns
within one run, in orders in which each side follows every other side equally often. The medians of
the sides are compared.

The elapsed time depends on the other programs of the machine. `timed` therefore also measures the
processor time of all programs that take part, and with ``--real-time``, all sides run before the
other programs of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from _processor_time import adopt_orphans, descendant_seconds

Side = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a benchmark: symphony's and the peer's samples, both in ``unit``, and the
    result.

    ``result`` is the ratio of the medians, or another quantity that the target names. ``holds``
    states whether the target is met, and is None if there is no target.
    """

    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    peer_name: str = ""
    result: str = ""
    target: str = ""
    holds: bool | None = None
    note: str = ""


def in_turns(
    runs: int, *sides: Side, settled: Callable[[], object] | None = None
) -> list[list[float]]:
    """Measure the sides in turns, and return the samples of each side.

    A side is a function that performs one measurement and returns the result.

    ``settled`` is called before each measurement. It returns when the effects of the previous
    measurement have subsided.
    """
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(runs):
        for side in order(number, len(sides)):
            if settled is not None:
                settled()
            samples[side].append(sides[side]())
    return samples


def order(number: int, sides: int) -> list[int]:
    """Return the order in which the sides are measured in a round.

    Over ``sides`` rounds, or twice as many if ``sides`` is odd, each side follows every other side
    equally often.

    >>> [order(number, 4) for number in range(4)]
    [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]]
    """
    steps = [(turn + 1) // 2 if turn % 2 else -(turn // 2) for turn in range(sides)]
    found = [(number + step) % sides for step in steps]
    return found[::-1] if sides % 2 and number // sides % 2 else found


class Duration(float):
    """The duration of a call in seconds.

    ``processor_seconds`` is the processor time of this program and of its descendants meanwhile.
    """

    processor_seconds: float

    def __new__(cls, seconds: float, processor_seconds: float) -> Duration:
        """Create a duration."""
        duration = super().__new__(cls, seconds)
        duration.processor_seconds = processor_seconds
        return duration

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the arguments with which `copy` creates a copy."""
        return float(self), self.processor_seconds


def timed(function: Callable[[], object]) -> Duration:
    """Return the duration of a call."""
    descendants = descendant_seconds()
    own, begin = time.process_time(), time.perf_counter()
    function()
    seconds, used = time.perf_counter() - begin, time.process_time() - own
    return Duration(seconds, used + descendant_seconds() - descendants)


def median(samples: Iterable[float]) -> float:
    """Return the median as a float."""
    return float(statistics.median(samples))


def at_most_times(
    what: str,
    ours: Sequence[float],
    peer: Sequence[float],
    times: float,
    *,
    plus: float = 0.0,
    peer_name: str,
    note: str = "",
) -> Figure:
    """Return a figure that compares durations in seconds.

    The target is a duration of at most ``times`` times the peer's duration, plus ``plus`` seconds.
    """
    return Figure(
        what=what,
        unit="s",
        ours=ours,
        peer=peer,
        peer_name=peer_name,
        result=_times(median(ours), median(peer)),
        target=f"<= {times:g}x" + (f" + {plus:g} s" if plus else ""),
        holds=median(ours) <= times * median(peer) + plus,
        note=note,
    )


def times_faster(
    what: str,
    ours: Sequence[float],
    peer: Sequence[float],
    times: float | None,
    *,
    peer_name: str,
    note: str = "",
) -> Figure:
    """Return a figure that compares how fast both sides perform the same work.

    The samples are durations in seconds. The target is a rate of at least ``times`` times the rate
    of the peer.
    """
    ratio = median(peer) / median(ours)
    return Figure(
        what=what,
        unit="s",
        ours=ours,
        peer=peer,
        peer_name=peer_name,
        result=f"{ratio:.2f} of the rate" if ratio < 1.5 else f"{ratio:.1f}x as fast",
        target="" if times is None else f">= {times:g}",
        holds=None if times is None else ratio >= times,
        note=note,
    )


def at_most_seconds_more(
    what: str,
    ours: Sequence[float],
    peer: Sequence[float],
    more: float,
    *,
    peer_name: str,
    note: str = "",
) -> Figure:
    """Return a figure that compares durations in seconds.

    The target is a duration of at most the peer's duration plus ``more`` seconds.
    """
    difference = median(ours) - median(peer)
    return Figure(
        what=what,
        unit="s",
        ours=ours,
        peer=peer,
        peer_name=peer_name,
        result=f"{format_value(difference, 's')} more",
        target=f"<= {format_value(more, 's')} more",
        holds=difference <= more,
        note=note,
    )


def at_most(
    what: str,
    unit: str,
    ours: Sequence[float],
    limit: float | None,
    *,
    peer: Sequence[float] = (),
    peer_name: str = "",
    note: str = "",
) -> Figure:
    """Return a figure with an absolute limit. The peer is shown only for comparison."""
    return Figure(
        what=what,
        unit=unit,
        ours=ours,
        peer=peer,
        peer_name=peer_name,
        result=_times(median(ours), median(peer)) if peer else "",
        target="" if limit is None else f"<= {format_value(limit, unit)}",
        holds=None if limit is None else median(ours) <= limit,
        note=note,
    )


def _times(ours: float, peer: float) -> str:
    return f"{ours / peer:.2f}x" if peer else ""


def format_value(value: float, unit: str) -> str:
    """Format a value with its unit. Durations below one second are shown in milliseconds.

    >>> format_value(0.0214, "s"), format_value(500, "lines")
    ('21.4 ms', '500 lines')
    """
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 0.9995 else f"{value:.3g} s"
    return (
        f"{value:,.0f} {unit}"
        if value == int(value) or abs(value) >= 1000
        else f"{value:.3g} {unit}"
    )


def processor_times(samples: Sequence[float]) -> list[float]:
    """Return the processor times of durations, or none if one of the samples has none."""
    found = [sample.processor_seconds for sample in samples if isinstance(sample, Duration)]
    return found if len(found) == len(samples) else []


# --- the command line of a benchmark ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command-line options of a benchmark."""

    quick: bool

    def pick(self, full: int, quick: int) -> int:
        """Return ``full`` for a full benchmark, or ``quick`` for a quick benchmark."""
        return quick if self.quick else full


def main(description: str, measure: Callable[[Options], Iterable[Figure]]) -> NoReturn:
    """Run a benchmark as a program: measure, print, and exit with 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small version: fewer processes, fewer runs"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a figure, with every sample"
    )
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="run before all other programs of the machine (as root), so that they have no effect",
    )
    arguments = parser.parse_args()
    if arguments.real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    adopt_orphans()
    # An installed package has bytecode. Without it, a command would compile its modules each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # The default action of TERM would leave processes running. An exception lets the benchmark stop
    # them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    show = print_json if arguments.json else Table(description.strip().splitlines()[0])
    missed = 0
    for figure in measure(Options(quick=arguments.quick)):
        show(figure)
        missed += figure.holds is False
    raise SystemExit(1 if missed else 0)


def print_json(figure: Figure) -> None:
    """Print a figure and its samples as one line of JSON."""
    medians: dict[str, Any] = {
        "median": median(figure.ours),
        "peer_median": median(figure.peer) if figure.peer else None,
        "processor_seconds": processor_times(figure.ours),
        "peer_processor_seconds": processor_times(figure.peer),
    }
    print(json.dumps({**asdict(figure), **medians}), flush=True)


_WIDTHS = (46, 11, 30, 18, 18)


class Table:
    """A table that prints each figure as a row as soon as the figure is known."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}\n{self._row('', 'symphony', 'peer', 'result', 'target')}", flush=True)

    def __call__(self, figure: Figure) -> None:
        """Print one figure."""
        peer = (
            f"{format_value(median(figure.peer), figure.unit)} ({figure.peer_name})"
            if figure.peer
            else ""
        )
        verdict = {True: "holds", False: "MISSED", None: ""}[figure.holds]
        ours = format_value(median(figure.ours), figure.unit)
        row = self._row(figure.what, ours, peer, figure.result, figure.target)
        print(f"{row} {verdict}".rstrip(), flush=True)
        for note in (_compare_undisturbed(figure), figure.note):
            self._print_note(note)

    @staticmethod
    def _print_note(note: str) -> None:
        if note:
            width = max(60, shutil.get_terminal_size().columns)
            print(
                textwrap.fill(note, width, initial_indent="    ", subsequent_indent="    "),
                flush=True,
            )

    @staticmethod
    def _row(*cells: str) -> str:
        return " ".join(
            cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)
        ).rstrip()


def _compare_undisturbed(figure: Figure) -> str:
    """Return a note about what other programs of the machine change little: the fastest durations
    and the processor times of both sides. It is ``""`` if the processor times are unknown.
    """
    ours, peer = processor_times(figure.ours), processor_times(figure.peer)
    if not ours or not peer:
        return ""
    fastest = _compare("fastest", min(figure.ours), min(figure.peer))
    return f"{fastest}; {_compare('processor time', median(ours), median(peer))}"


def _compare(what: str, ours: float, peer: float) -> str:
    return f"{what} {format_value(ours, 's')}, peer {format_value(peer, 's')}: {_times(ours, peer)}"
