"""Rules that find problems in an experiment on a backend without launching it.

Each rule is a function of an experiment and a target that yields findings. All findings are
reported at once, each with its position and a hint. The rules change nothing, and query a cluster
only for its GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from symphony.lint import gpus, literals, rendering, sizes, structure
from symphony.lint.literals import Machine
from symphony.lint.merge import in_document_order, merge_findings
from symphony.lint.targets import Target
from symphony.plan.findings import ERROR, NOTE, WARNING, Finding

if TYPE_CHECKING:
    from symphony.errors import SpecError
    from symphony.model import Experiment
    from symphony.model.document_path import DocumentPath

# If one of these settings could not be loaded, services or processes are missing, and the rules
# would report problems that the experiment does not have.
_STRUCTURAL_KEYS = frozenset({"binds", "connects", "count", "exposes", "processes", "parameters"})


def lint(
    experiment: Experiment,
    targets: Sequence[Target],
    *,
    machine: Machine,
    offline: bool = False,
    load_errors: Collection[SpecError] = (),
) -> list[Finding]:
    """Return the problems in an experiment on the given backends, in the order of the file.

    ``machine`` describes this machine, whose paths may not exist on other machines. If ``offline``
    is true, no cluster is queried. ``load_errors`` are the errors in the parts of the file that
    ``experiment`` does not contain; problems that could be consequences of these errors are left
    out.
    """
    error_paths = [error.path for error in load_errors]
    if any(_is_structural(path) for path in error_paths):
        return []
    findings: list[Finding] = []
    for target in targets:
        rules: list[Iterable[Finding]] = [
            structure.rules(experiment),
            rendering.rules(experiment, target),
            sizes.rules(experiment, target),
            gpus.rules(experiment, target, offline=offline),
        ]
        if target.is_remote:
            rules.append(literals.rules(experiment, machine))
        for rule in rules:
            findings += [finding.for_target(target.name) for finding in rule]
    findings = [finding for finding in findings if not _is_affected(finding.path, error_paths)]
    return in_document_order(merge_findings(findings), experiment.dump_dict())


def _is_structural(path: DocumentPath) -> bool:
    """Return whether an error at a path can hide services or processes.

    The path of an unknown key ends with that key, which can be a misspelled structural key.
    """
    from symphony.model.settings import SETTINGS

    keys = path[2:] if path[:1] == ("processes",) else path
    if keys[:1] == ("processes",):
        keys = keys[2:]
    known_keys = {*SETTINGS, *_OPTION_KEYS}
    return not keys or keys[0] in _STRUCTURAL_KEYS or keys[0] not in known_keys


_OPTION_KEYS = frozenset(
    {"name", "secrets", "port_range", "images"}
    | {"container_image", "command", "args", "cmd", "cmds", "env", "start_dir", "preamble_cmds"}
)


def _is_affected(path: DocumentPath, error_paths: Iterable[DocumentPath]) -> bool:
    """Return whether a finding is about a value that could not be loaded."""
    return any(path[: len(error_path)] == error_path for error_path in error_paths)


__all__ = ["ERROR", "NOTE", "WARNING", "Finding", "Machine", "Target", "lint"]
