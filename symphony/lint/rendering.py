"""Rules that a backend enforces itself when it renders an experiment.

A backend reports only the first error in an experiment. To find all errors, this module renders
each part of the experiment separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.errors import PluginError, SpecError, SymphonyError
from symphony.lint.repaired_copies import (
    any_experiment,
    each_experiment_option,
    each_member,
    minimal_experiment,
    only_member,
    repaired,
    without_experiment_options,
)
from symphony.lint.targets import PLACEHOLDER_IMAGE
from symphony.plan.findings import ERROR, Finding, finding_of

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment, Process, ProcessGroup
    from symphony.model.document_path import DocumentPath


def rules(experiment: Experiment, valid: Experiment, target: Target) -> Iterator[Finding]:
    """Yield the errors that the target's backend reports, except for those that all backends
    report.

    ``valid`` is the result of `without_reported_errors`.
    """
    yield from _missing_images(experiment, target)
    yield from _rendering_errors(experiment, valid, target)


def _missing_images(experiment: Experiment, target: Target) -> Iterator[Finding]:
    if not target.requires_image:
        return
    for process in experiment.list_all_processes():
        overrides = [process.settings.container_yml]
        if process.group is not None:
            overrides.append(process.group.settings.container_yml)
        if process.container_image or any(override.get("image") for override in overrides):
            continue
        yield finding_of(
            process,
            "no-image",
            "has no container_image",
            "set container_image, or give --image for all processes without one",
            below=("container_image",),
        )


def _rendering_errors(
    experiment: Experiment, valid: Experiment, target: Target
) -> Iterator[Finding]:
    image = PLACEHOLDER_IMAGE if target.requires_image else None
    whole = repaired(valid, image=image)
    if not whole.list_all_processes():
        return
    error = _error(whole, target)
    if error is None:
        return
    if _error(any_experiment(image=image), target) is not None:
        # The options of the backend do not fit small experiments, such as those below.
        yield _finding_from("refused", error)
        return
    name_findings = list(_invalid_names(experiment, target, image))
    # If a name is invalid, the check of each option can fail because of the name. Options are
    # therefore checked only if all names are valid.
    option_findings = [] if name_findings else list(_invalid_options(whole, target, image))
    if option_findings:
        whole = without_experiment_options(whole)
    reported = {path for finding in name_findings for path in finding.processes}
    findings = [*option_findings, *name_findings]
    for name, part in each_member(whole):
        paths = {name, *(process.path for process in part.list_all_processes())}
        if reported.isdisjoint(paths):
            findings += _errors_of_member(part, target)
    yield from findings or [_finding_from("refused", error)]


def _invalid_names(experiment: Experiment, target: Target, image: str | None) -> Iterator[Finding]:
    """Yield a finding for each process, group or service name that the backend does not accept."""
    for component in experiment.list_components():
        copy = minimal_experiment(experiment, component.name, image=image)
        error = _error(copy, target)
        if error is not None:
            yield _finding_from("name", error, component, path=component.document_path)
        for key in ("binds", "exposes"):
            for service in getattr(component.settings, key):
                copy = minimal_experiment(experiment, "a", image=image, service=service)
                error = _error(copy, target)
                if error is not None:
                    path = (*component.document_path, key, service)
                    yield _finding_from("name", error, component, path=path)


def _invalid_options(
    experiment: Experiment, target: Target, image: str | None
) -> Iterator[Finding]:
    for path, copy in each_experiment_option(experiment, image=image):
        error = _error(copy, target)
        if error is not None:
            yield _finding_from("refused", error, path=path)


def _errors_of_member(part: Experiment, target: Target) -> Iterator[Finding]:
    """Yield the errors in the members of the group in ``part``. If there are none, yield the error
    in the group itself, or in the process if ``part`` contains no group.
    """
    error = _error(part, target)
    if error is None:
        return
    (member,) = part.list_members()
    findings: list[Finding] = []
    for group in part.list_process_groups():
        for process in group.list_processes():
            process_error = _error(only_member(part, process), target)
            if process_error is not None:
                findings.append(_finding_from("refused", process_error, process))
    yield from findings or [_finding_from("refused", error, member)]


def _error(experiment: Experiment, target: Target) -> SymphonyError | None:
    """Return the backend's error for an experiment, or None if the backend finds no error."""
    try:
        manifest = target.cluster.manifest(experiment)
        if not target.is_remote:
            from symphony.supervised import preflight
            from symphony.supervised.render import HostManifest

            if isinstance(manifest, HostManifest):
                preflight.check(manifest)
    except (SpecError, PluginError) as exc:
        return exc
    return None


def _finding_from(
    rule: str,
    error: SymphonyError,
    component: Process | ProcessGroup | None = None,
    *,
    path: DocumentPath | None = None,
) -> Finding:
    """Return the finding for an error. The hint is the text after the first semicolon.

    If ``path`` is not given, the finding has the path of the error, or else of the component.
    """
    problem, _, hint = str(error).partition("; ")
    if path is None and isinstance(error, SpecError):
        path = error.path or None
    if component is None:
        return Finding(rule=rule, level=ERROR, problem=problem, hint=hint, path=path or ())
    # The finding already contains the component's name.
    subject = re.escape(repr(component.path))
    problem = re.sub(rf"^(process|group) {subject}:? ", "", problem)
    return finding_of(component, rule, problem, hint, path=path)
