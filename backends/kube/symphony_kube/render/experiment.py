"""Render a plan as Kubernetes objects, which are plain dictionaries.

Every function except `read_files` is pure.

The same plan, scope, options and file contents always produce the same objects, byte for byte.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from symphony.code.snapshot import CodeArchive, CodeArchives
from symphony.config.locations import expand_user
from symphony.errors import default_error_path
from symphony.model.settings.table import KUBE, honoured_by
from symphony.plan.ignored import Ignored, ignored_settings
from symphony.plan.plan import Plan
from symphony.plan.resolution.process_settings import secret_text
from symphony_kube.api.labels import Scope
from symphony_kube.record.encoded_record import record_of_launch
from symphony_kube.render import object_kinds, pods
from symphony_kube.render.attempt_names import check_names
from symphony_kube.render.file_objects.code_volumes import code_objects, is_small
from symphony_kube.render.file_objects.configs import config_objects
from symphony_kube.render.file_objects.files import paths, read_files
from symphony_kube.render.file_objects.secrets import file_object_name, file_objects, file_sources
from symphony_kube.render.given_fields.cluster_overrides import with_cluster_override
from symphony_kube.render.given_fields.overrides import Override
from symphony_kube.render.job_sets import job_name, job_set
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.pod_parts.containers import check_images
from symphony_kube.render.pod_parts.deadline import with_deadline
from symphony_kube.render.render_context import (
    PlannedUnit,
    RenderContext,
    planned_units,
    render_context,
)
from symphony_kube.render.roster import roster_unit
from symphony_kube.render.roster_entries import roster_entry
from symphony_kube.render.service_objects import render_services
from symphony_kube.render.shared_variables import environment_object
from symphony_kube.render.stop_script import mounts_script, scripts_object
from symphony_kube.render.text import Object

__all__ = ["read_files", "render"]

# The settings that this backend implements. The kubelet limits the size of logs, and a Pod cannot
# change this limit. `_ignored` adds the limits and delays of restarts that have no effect on Jobs.
HONOURED = honoured_by(KUBE) | {
    "container_image",
    "ends_with",
    "on_failure",
    "deadline",
    "record_usage",
}

# The restart policy of processes whose code only the user's command can send to their Pods.
NOT_REPLACED = "restart_policy after a drain or an eviction, because the code is too large"

_NO_ARCHIVES: CodeArchives = MappingProxyType({})


def render(
    plan: Plan,
    scope: Scope,
    options: RenderOptions,
    files: Mapping[str, bytes],
    archives: CodeArchives = _NO_ARCHIVES,
) -> KubeManifest:
    """Return the manifest for a plan. ``files`` is the result of `read_files`, and ``archives``
    contains the code of the processes.

    Raises `SpecError` if a process has no image, or if Kubernetes does not support a setting in the
    plan.
    """
    with _garbage_collection_disabled():
        return _render(plan, scope, options, files, archives)


@contextlib.contextmanager
def _garbage_collection_disabled() -> Iterator[None]:
    """Disable Python's garbage collector while the context is active.

    Rendering creates many objects but no reference cycles, so a collection would traverse all
    objects and free none.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _render(
    plan: Plan,
    scope: Scope,
    options: RenderOptions,
    files: Mapping[str, bytes],
    archives: CodeArchives,
) -> KubeManifest:
    check_images(plan, options)
    _check_secrets_in_variables(plan, files)
    sources = file_sources(plan)
    object_names = {key: file_object_name(scope, *key) for key in sources}
    context = render_context(plan, scope, options, object_names, archives)
    planned = planned_units(plan)
    check_names(unit.name for unit in planned)
    job_sets = _ranks_of_job_sets(planned)
    policies = plan.policies
    limit = policies.deadline if options.limits_pods else None
    unlimited = _unit_bodies(planned, job_sets, context)
    bodies = {name: with_deadline(body, limit) for name, body in unlimited.items()}
    roster = tuple(roster_entry(unit, bodies.get(unit.name), context) for unit in planned)
    first = bodies[roster_unit(roster).name]
    record = record_of_launch(roster, policies, plan.parameters)
    for annotation, text in record.annotations().items():
        pods.annotate(first, annotation, text)
    base_dir = plan.base_dir or Path()
    return KubeManifest(
        experiment=plan.experiment,
        scope=scope,
        base_objects=(
            *_namespace(scope, options),
            *_environment(context),
            *file_objects(sources, scope, files),
            *config_objects(plan, scope),
            *code_objects(_archives_in_secrets(planned, context), scope),
            *render_services(planned, context),
            *_scripts(bodies.values(), scope),
        ),
        units=tuple(bodies.values()),
        roster=roster,
        ignored=_ignored(plan, planned, context),
        policies=policies,
        parameters=plan.parameters,
        overrides=tuple(
            override
            for unit in planned
            for override in _overrides(unit, _pod_path(unit, job_sets, context))
        ),
        source_files=tuple(base_dir / expand_user(source) for source in paths(plan)),
        snapshots={name: archive.snapshot for name, archive in archives.items()},
    )


def _archives_in_secrets(
    planned: Sequence[PlannedUnit], context: RenderContext
) -> Iterator[CodeArchive]:
    """Yield the archives that Pods mount."""
    for unit in planned:
        is_created_later = object_kinds.is_created_later(unit, context)
        for process in unit.processes:
            archive = context.archives.get(process.name)
            if archive is not None and (is_small(archive) or is_created_later):
                yield archive


def _ignored(
    plan: Plan, planned: Sequence[PlannedUnit], context: RenderContext
) -> tuple[Ignored, ...]:
    """Return the settings that have no effect on Kubernetes."""
    unlimited: list[str] = []
    undelayed: list[str] = []
    without_final_codes: list[str] = []
    with_large_code: list[str] = []
    for unit in planned:
        restart = unit.processes[0].restart
        if restart.policy == "Never" or object_kinds.is_restarted_by_supervisor(unit, context):
            continue
        paths_of_unit = [process.path for process in unit.processes]
        is_pod = unit.job_set is None and not object_kinds.is_job(unit, context)
        if is_pod and not object_kinds.is_replaced_if_lost(unit, context):
            with_large_code += paths_of_unit
        if restart.max_restarts is not None and not object_kinds.is_restarted_by_job(unit):
            unlimited += paths_of_unit
        if restart.backoff is not None:
            undelayed += paths_of_unit
        if restart.final_codes:
            without_final_codes += paths_of_unit
    ignored = ignored_settings(plan, HONOURED)
    parts = {
        "max_restarts": unlimited,
        "backoff": undelayed,
        "final_codes": without_final_codes,
    }
    for name, processes in parts.items():
        if processes:
            setting = f"restart_policy.{name}"
            ignored = (*ignored, Ignored(setting=setting, processes=tuple(processes)))
    if with_large_code:
        ignored = (*ignored, Ignored(setting=NOT_REPLACED, processes=tuple(with_large_code)))
    return ignored


def _check_secrets_in_variables(plan: Plan, files: Mapping[str, bytes]) -> None:
    """Raise `SpecError` if a secret that becomes an environment variable is not text."""
    names: dict[str, None] = {}
    for process in plan:
        names.update(dict.fromkeys(process.settings.env_secrets.values()))
    for name in names:
        secret_text(name, files[plan.secrets[name]])


def _namespace(scope: Scope, options: RenderOptions) -> list[Object]:
    """Return a list that contains the experiment's Namespace, or an empty list if it is shared."""
    if scope.shared:
        return []
    metadata = {"name": scope.namespace, "labels": scope.labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return [with_cluster_override(body, options)]


def _environment(context: RenderContext) -> list[Object]:
    """Return a list that contains the ConfigMap with the variables of all processes, if any."""
    if not context.shares_environment:
        return []
    return [environment_object(context.common_variables, context.scope)]


def _scripts(bodies: Iterable[Object], scope: Scope) -> list[Object]:
    """Return a list that contains the ConfigMap with the script that stops programs, if any."""
    return [scripts_object(scope)] if any(map(mounts_script, bodies)) else []


def _unit_bodies(
    planned: Sequence[PlannedUnit],
    job_sets: Mapping[str, Sequence[PlannedUnit]],
    context: RenderContext,
) -> dict[str, Object]:
    """Return the object of each unit, and of each JobSet at the name of its first rank."""
    bodies: dict[str, Object] = {}
    for unit in planned:
        with default_error_path(*unit.document_path):
            if unit.job_set is None:
                is_job = object_kinds.is_job(unit, context)
                bodies[unit.name] = pods.job(unit, context) if is_job else pods.pod(unit, context)
            elif unit is job_sets[unit.job_set][0]:
                bodies[unit.name] = job_set(job_sets[unit.job_set], context)
    return bodies


def _ranks_of_job_sets(planned: Sequence[PlannedUnit]) -> dict[str, list[PlannedUnit]]:
    ranks: dict[str, list[PlannedUnit]] = {}
    for unit in planned:
        if unit.job_set is not None:
            ranks.setdefault(unit.job_set, []).append(unit)
    return ranks


def _pod_path(
    unit: PlannedUnit, job_sets: Mapping[str, Sequence[PlannedUnit]], context: RenderContext
) -> tuple[str, ...]:
    """Return the path to the Pod of a unit in its object, as in `Override`."""
    if unit.job_set is not None:
        number = job_sets[unit.job_set].index(unit)
        return ("spec", "replicatedJobs", job_name(number), "template", "spec", "template")
    return ("spec", "template") if object_kinds.is_job(unit, context) else ()


def _overrides(unit: PlannedUnit, pod_path: tuple[str, ...]) -> Iterator[Override]:
    """Yield the override for a unit's Pod, if there is one, and those for the Pod's containers."""
    pod_yml = unit.processes[0].pod.pod_yml
    if pod_yml:
        yield Override(
            unit=unit.name,
            description=f"pod_yml of {unit.description}",
            path=pod_path,
            fields=pod_yml,
        )
    for process in unit.processes:
        container_yml = process.settings.container_yml
        if container_yml:
            yield Override(
                unit=unit.name,
                description=f"container_yml of process {process.path!r}",
                path=(*pod_path, "spec", "containers", process.name),
                fields=container_yml,
            )
