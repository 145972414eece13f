"""From a plan to the objects of Kubernetes, as plain dictionaries. Pure but for `read_files`.

The same plan, scope, options and contents of files give the same objects, byte for byte.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from pathlib import Path

from symphony.plan.resolve import Plan, secret_text
from symphony_kube.api.labels import ROSTER, Scope
from symphony_kube.render import pods, secrets
from symphony_kube.render.containers import DEFAULT_READY_TIMEOUT, check_images
from symphony_kube.render.context import Context, Group, context, groups
from symphony_kube.render.files import paths, read_files
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.options import Options
from symphony_kube.render.overrides import Override
from symphony_kube.render.roster import Unit, encode
from symphony_kube.render.services import services
from symphony_kube.render.text import Object


def render(plan: Plan, scope: Scope, options: Options, files: Mapping[str, bytes]) -> KubeManifest:
    """What ``plan`` becomes in ``scope``. Raises `SpecError` for what Kubernetes cannot do.

    ``files`` has the contents that `read_files` found.
    """
    with _uncollected():
        return _render(plan, scope, options, files)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage, of which there is none: it would visit every object again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _render(plan: Plan, scope: Scope, options: Options, files: Mapping[str, bytes]) -> KubeManifest:
    check_images(plan, options)
    for name in dict.fromkeys(
        name for process in plan for name in process.settings.env_secrets.values()
    ):
        secret_text(name, files[plan.secrets[name]])
    made = secrets.made_from_files(plan)
    shared = context(plan, scope, options, {key: secrets.made_name(scope, *key) for key in made})
    found = groups(plan)
    units = tuple(
        pods.job(group, shared) if pods.is_job(group, shared) else pods.pod(group, shared)
        for group in found
    )
    roster = tuple(_entry(group, unit, shared) for group, unit in zip(found, units, strict=True))
    base = plan.base_dir or Path()
    first = next((number for number, entry in enumerate(roster) if not entry.starts_after), 0)
    pods.annotate(units[first], ROSTER, encode(roster))
    return KubeManifest(
        experiment=plan.experiment,
        scope=scope,
        ground=(*_namespace(scope), *secrets.objects(made, scope, files), *services(found, shared)),
        units=units,
        roster=roster,
        overrides=tuple(hatch for group in found for hatch in _hatches(group, shared)),
        reads=tuple(base / source for source in paths(plan)),
    )


def _namespace(scope: Scope) -> list[Object]:
    """The experiment's own namespace, where it has one."""
    if scope.shared:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": scope.namespace, "labels": scope.labels},
        }
    ]


def _hatches(group: Group, shared: Context) -> Iterator[Override]:
    """What users wrote themselves over a unit's Pod, and over its containers."""
    pod = ("spec", "template") if pods.is_job(group, shared) else ()
    own = group.processes[0].pod.pod_yml
    if own:
        yield Override(unit=group.name, where=f"pod_yml of {group.what}", place=pod, written=own)
    for process in group.processes:
        own = process.settings.container_yml
        if own:
            where, place = (
                f"container_yml of process {process.path!r}",
                (*pod, "spec", "containers", process.name),
            )
            yield Override(unit=group.name, where=where, place=place, written=own)


def _entry(group: Group, unit: Object, shared: Context) -> Unit:
    """What the roster tells of a unit."""
    job = unit["kind"] == "Job"
    spec = unit["spec"]["template"]["spec"] if job else unit["spec"]
    tests = {process.name: process.settings.ready for process in group.processes}
    return Unit(
        name=group.name,
        group=group.group,
        processes=tuple(tests),
        job=job,
        restart=spec.get("restartPolicy") or "Always",
        starts_after=dict(group.processes[0].starts_after),
        ready={
            name: float(test.get("timeout", DEFAULT_READY_TIMEOUT))
            for name, test in tests.items()
            if test
        },
        logs={name: test["log"] for name, test in tests.items() if test and "log" in test},
        connects={
            process.name: process.settings.connects
            for process in group.processes
            if process.settings.connects
        },
        serves={
            name: [one.service for one in shared.served[name]]
            for name in tests
            if name in shared.served
        }
        if group.group
        else {},
    )


__all__ = ["read_files", "render"]
