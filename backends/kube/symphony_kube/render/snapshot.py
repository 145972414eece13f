"""The values of an experiment that determine what `up` changes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from symphony.code.snapshot import CodeArchives
from symphony.plan.changes import ProcessSnapshot, Snapshot, snapshot_of_plan
from symphony.plan.plan import Plan, PlannedProcess
from symphony_kube.render.given_fields.merge import to_plain_data
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.sync import obstacle

# The settings that take effect without a restart: they concern the order of starts and the
# Services.
LIVE_SETTINGS = frozenset({"starts_after", "exposes", "log_limit"})
_NO_ARCHIVES: CodeArchives = MappingProxyType({})


def take_snapshot(
    plan: Plan,
    options: RenderOptions,
    files: Mapping[str, bytes],
    archives: CodeArchives = _NO_ARCHIVES,
) -> Snapshot:
    """Return the snapshot of a plan. ``files`` is the result of `read_files`, and ``archives``
    contains the code of the processes.

    The contents of files appear as digests.
    """
    secrets = {name: _digest(files[source]) for name, source in plan.secrets.items()}
    snapshot = snapshot_of_plan(plan, secrets)
    processes = {
        process.name: _with_options(snapshot.processes[process.name], process, options, files)
        for process in plan
    }
    for process in plan:
        name = process.name
        archive = archives.get(name)
        if archive is None:
            continue
        code: dict[str, Any] = {"code": archive.snapshot.short_digest}
        if process.code is not None and process.code.sync:
            code["sync"] = obstacle(process, options) or True
        if options.code_image:
            code["code_image"] = options.code_image
        settings = {**processes[name].settings, **code}
        processes[name] = replace(processes[name], settings=settings)
    return replace(snapshot, processes=processes)


def _with_options(
    snapshot: ProcessSnapshot,
    process: PlannedProcess,
    options: RenderOptions,
    files: Mapping[str, bytes],
) -> ProcessSnapshot:
    """Return the snapshot of a process with the options of the cluster and the files that have an
    effect on it.
    """
    exposed = {endpoint.service: options.expose for endpoint in process.serves if endpoint.exposed}
    values = {
        "image": process.container_image or options.image,
        "service_account": options.service_account,
        "image_pull_secrets": list(options.image_pull_secrets),
        "exposes": exposed,
        "files": _file_digests(process, files),
        "cluster_pod_yml": to_plain_data(options.pod_yml, "the option pod_yml"),
        "security": options.security,
    }
    if "gpu" in process.settings.resource_limit:
        values["gpu_resource"] = options.gpu_resource
    given = {name: value for name, value in values.items() if value}
    return replace(snapshot, settings={**snapshot.settings, **given})


def _file_digests(process: PlannedProcess, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the digests of the files of a process's volumes."""
    digests = {}
    for volume in process.settings.volumes:
        ((kind, details),) = volume.items()
        for name, source in details.get("files", {}).items():
            digests[f"{details[kind]}/{name}"] = _digest(files[source])
    return digests


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
