"""Merge equal findings about several processes and targets, and sort findings by position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.model.document_path import DocumentPath
    from symphony.plan.findings import Finding


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merge equal findings, and return the resulting list.

    Findings that differ only in their targets are merged first. Then findings that differ only in
    their processes and paths are merged. A merged finding has the path of the first finding that it
    replaces.
    """
    by_target: dict[Finding, Finding] = {}
    for finding in findings:
        key = replace(finding, targets=())
        earlier = by_target.get(key, key)
        targets = _without_duplicates(*earlier.targets, *finding.targets)
        by_target[key] = replace(earlier, targets=targets)
    similar: dict[Finding, list[Finding]] = {}
    for finding in by_target.values():
        similar.setdefault(replace(finding, processes=(), path=()), []).append(finding)
    return [_for_all_processes(group) for group in similar.values()]


def _for_all_processes(findings: Sequence[Finding]) -> Finding:
    """Return the first of several findings, with the processes of all of them."""
    names = [name for finding in findings for name in finding.processes]
    return replace(findings[0], processes=_without_duplicates(*names))


def _without_duplicates(*items: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def in_document_order(findings: Iterable[Finding], data: Mapping[str, Any]) -> list[Finding]:
    """Return the findings in the order of their paths in ``data``.

    ``data`` is the result of `Experiment.dump_dict`.
    """
    positions: dict[DocumentPath, int] = {}
    _number_values(data, (), positions)

    def position(finding: Finding) -> int:
        path = finding.path
        while path not in positions:
            path = path[:-1]
        return positions[path]

    return sorted(findings, key=position)


def _number_values(data: Any, path: DocumentPath, positions: dict[DocumentPath, int]) -> None:
    positions[path] = len(positions)
    if isinstance(data, Mapping):
        for key, value in data.items():
            _number_values(value, (*path, key), positions)
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            _number_values(value, (*path, index), positions)
