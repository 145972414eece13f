"""The order in which the processes of an experiment are stopped: the reverse of the start order.

All backends use this module. The processes are stopped in waves. A wave is stopped when no process
of the previous wave is running any more, and each process has its own grace period.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def stop_waves(
    names: Iterable[str], starts_after: Mapping[str, Collection[str]]
) -> list[list[str]]:
    """Return the processes ``names`` in the waves in which they are stopped.

    ``starts_after`` maps each process of the experiment to the processes after which it starts.
    Processes with the same distance from the beginning of the start order form a wave. The order
    within a wave is that of ``names``.

    >>> stop_waves(["db", "app", "job"], {"db": (), "app": ["db"], "job": ["app"]})
    [['job'], ['app'], ['db']]
    """
    depths = _depths(starts_after)
    waves: dict[int, list[str]] = {}
    for name in names:
        waves.setdefault(depths.get(name, 0), []).append(name)
    return [waves[depth] for depth in sorted(waves, reverse=True)]


def longest_stop(graces: Mapping[str, float], starts_after: Mapping[str, Collection[str]]) -> float:
    """Return the longest time that a stop of all processes can take, in seconds.

    ``graces`` maps the processes to their grace periods in seconds.

    >>> longest_stop({"db": 30, "app": 10, "web": 5}, {"db": (), "app": ["db"], "web": ["db"]})
    40
    """
    waves = stop_waves(graces, starts_after)
    longest = []
    for wave in waves:
        longest.append(max(graces[name] for name in wave))
    return sum(longest)


def _depths(starts_after: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Return the length of the longest chain of dependencies of each process.

    A description in a damaged file can contain a cycle. A dependency that closes it is ignored.
    """
    depths: dict[str, int] = {}
    for first in starts_after:
        pending = [first]
        open_names: set[str] = set()
        while pending:
            name = pending[-1]
            if name in depths:
                pending.pop()
                continue
            before = [other for other in starts_after[name] if other in starts_after]
            unknown = [other for other in before if other not in depths]
            if unknown and name not in open_names:
                open_names.add(name)
                pending += [other for other in unknown if other not in open_names]
                continue
            known = [depths[other] for other in before if other in depths]
            depths[name] = 1 + max(known, default=-1)
            pending.pop()
    return depths
