"""What a rule finds, and how many findings become few: the same one of many processes is told once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.model.document_path import Place

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rule found.

    An ``error`` keeps the experiment from being launched or from working, a ``warning`` may, a ``note`` says what was
    not looked at. ``what`` is wrong, ``mend`` says how to mend it (it may be empty), both without a full stop.
    ``place`` leads to it in the file form. ``processes`` are the paths of those that have it, none where all of the
    experiment is meant; ``targets`` the backends on which it holds.
    """

    rule: str
    level: str
    what: str
    mend: str = ""
    place: Place = ()
    processes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def on(self, target: str) -> Finding:
        """The same, for a target."""
        return replace(self, targets=(target,))

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON knows it."""
        return {
            "rule": self.rule,
            "level": self.level,
            "targets": list(self.targets),
            "processes": list(self.processes),
            "place": list(self.place),
            "what": self.what,
            "mend": self.mend,
        }


def refused(
    rule: str, message: str, *, place: Place = (), processes: tuple[str, ...] = ()
) -> Finding:
    """The error that a `SpecError` tells of: its message says what is wrong, and after a semicolon how to mend it."""
    what, _, mend = message.partition("; ")
    if processes:  # who it is stands beside it
        what = re.sub(rf"^(process|group) {re.escape(repr(processes[0]))}:? ", "", what)
    return Finding(rule=rule, level=ERROR, what=what, mend=mend, place=place, processes=processes)


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """The findings with equal ones as one: those of several targets, then those of several processes."""
    of_targets: dict[Finding, Finding] = {}
    for finding in findings:
        key = replace(finding, targets=())
        before = of_targets.get(key, key)
        of_targets[key] = replace(before, targets=_added(before.targets, finding.targets))
    of_processes: dict[Finding, Finding] = {}
    for finding in of_targets.values():
        key = replace(finding, processes=(), place=())
        before = of_processes.get(key, replace(finding, processes=()))
        of_processes[key] = replace(before, processes=_added(before.processes, finding.processes))
    return list(of_processes.values())


def _added(before: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *more)))


def in_order(findings: Iterable[Finding], data: Mapping[str, Any]) -> list[Finding]:
    """The findings in the order in which their places stand in ``data``, the dump of the experiment."""
    order: dict[Place, int] = {}
    _number(data, (), order)

    def at(finding: Finding) -> int:
        place = finding.place
        while place not in order:
            place = place[:-1]
        return order[place]

    return sorted(findings, key=at)


def _number(data: Any, place: Place, order: dict[Place, int]) -> None:
    order[place] = len(order)
    if isinstance(data, Mapping):
        for key, value in data.items():
            _number(value, (*place, key), order)
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            _number(value, (*place, index), order)
