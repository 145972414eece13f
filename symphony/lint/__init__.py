"""Rules that find an experiment's problems on a backend without launching the experiment.

Each rule is a function that takes an experiment and yields findings. All findings are reported at
once, each with its position and, if possible, a hint. The rules change nothing, and query a cluster
only for its nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from symphony.lint import (
    gpus,
    literals,
    nodes,
    ports,
    rendering,
    shells,
    sizes,
    structure,
    unsent_files,
)
from symphony.lint.literals import Machine
from symphony.lint.merge import in_document_order, merge_findings
from symphony.lint.repaired_copies import without_reported_errors
from symphony.lint.targets import Target
from symphony.model.document_path import REPLICA_KEYS
from symphony.model.settings.experiment_options import EXPERIMENT_OPTIONS
from symphony.plan.findings import ERROR, NOTE, WARNING, Finding

if TYPE_CHECKING:
    from symphony.errors import SpecError
    from symphony.model import Experiment
    from symphony.model.document_path import DocumentPath

# If one of these settings could not be loaded, services or processes may be missing from
# the experiment.
_STRUCTURAL_KEYS = frozenset(
    {"binds", "connects", "exposes", "processes", "parameters", *REPLICA_KEYS}
)
# The rules whose findings refer to another part of the experiment. If that part could not be
# loaded, these rules would report problems that the experiment does not have.
_REFERRING_RULES = frozenset(
    {
        "encrypted",
        "ends-with",
        "healthy",
        "no-processes",
        "ready",
        "replicated",
        "start-order",
        "unbound-service",
        "unused-service",
    }
)


def lint(
    experiment: Experiment,
    targets: Sequence[Target],
    *,
    machine: Machine,
    offline: bool = False,
    thorough: bool = False,
    load_errors: Collection[SpecError] = (),
) -> list[Finding]:
    """Return an experiment's problems on the given backends, sorted by their position in the file.

    ``machine`` describes this machine, whose paths may not exist on other machines. If ``offline``
    is true, no cluster is queried. If ``thorough`` is true, checks may take some seconds and run
    programs on the nodes of a cluster. ``load_errors`` contains the errors in the parts of the file
    that could not be loaded into ``experiment``. Problems that could be consequences of these
    errors are omitted.
    """
    error_paths = [error.path for error in load_errors]
    structural_errors = [path for path in error_paths if _is_structural(path)]
    affected_components = [_component_of(path) for path in structural_errors]
    if () in affected_components:
        return []
    # The copy is the same for all targets and rules.
    valid = without_reported_errors(experiment)
    findings: list[Finding] = []
    for target in targets:
        rules: list[Iterable[Finding]] = [
            structure.rules(experiment),
            ports.rules(experiment, target),
            rendering.rules(experiment, valid, target),
            sizes.rules(experiment, valid, target),
            gpus.rules(experiment, target, offline=offline),
            nodes.rules(experiment, target, offline=offline, thorough=thorough),
        ]
        if target.is_remote:
            rules += [
                literals.rules(experiment, machine),
                unsent_files.rules(experiment, machine),
                shells.rules(experiment),
            ]
        for rule in rules:
            findings += [finding.for_target(target.name) for finding in rule]
    if structural_errors:
        findings = [finding for finding in findings if finding.rule not in _REFERRING_RULES]
    unloaded = [*error_paths, *affected_components]
    findings = [finding for finding in findings if not _is_affected(finding.path, unloaded)]
    if not findings:
        return []
    return in_document_order(merge_findings(findings), experiment.dump_dict())


def _is_structural(path: DocumentPath) -> bool:
    """Return whether an error at ``path`` can hide services or processes.

    An error about an unknown key also counts, because the key can be a misspelled structural key.
    """
    from symphony.model.settings.table import SETTINGS

    keys = path[len(_component_of(path)) :]
    known_keys = {*SETTINGS, *_OPTION_KEYS}
    return not keys or keys[0] in _STRUCTURAL_KEYS or keys[0] not in known_keys


def _component_of(path: DocumentPath) -> DocumentPath:
    """Return the path of the process or group that contains ``path``.

    The result is empty if ``path`` is not in a process or group.
    """
    is_in_member = path[2:3] == ("processes",) and len(path) > 3
    if path[:1] != ("processes",) or len(path) < 2:
        return ()
    return path[:4] if is_in_member else path[:2]


_OPTION_KEYS = frozenset(
    {"name", "images", *EXPERIMENT_OPTIONS}
    | {
        "container_image",
        "command",
        "args",
        "cmd",
        "cmds",
        "env",
        "env_file",
        "start_dir",
        "preamble_cmds",
    }
)


def _is_affected(path: DocumentPath, error_paths: Iterable[DocumentPath]) -> bool:
    """Return whether a finding is about a part of the document that could not be loaded."""
    return any(path[: len(error_path)] == error_path for error_path in error_paths)


__all__ = ["ERROR", "NOTE", "WARNING", "Finding", "Machine", "Target", "lint"]
