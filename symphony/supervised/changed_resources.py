"""The resources that a change of a running experiment needs; see `symphony.plan.changes`.

All functions are pure, except that `secret_contents` reads files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.code.snapshot import SHORT_DIGEST_LENGTH
from symphony.plan.changes import (
    ADDED,
    REMOVED,
    STARTED_AGAIN,
    Changes,
    ProcessSnapshot,
    Snapshot,
)
from symphony.plan.resolution.addresses import replicated_services
from symphony.plan.resolution.encryption_keys import variable
from symphony.supervised.processes.scratch import SCRATCH_VARIABLE
from symphony.supervised.processes.spec import (
    AMD_GPU_VARIABLE,
    GPU_VARIABLE,
    LIVE_PASSED_SETTINGS,
    PASSED_SETTINGS,
    ProcessSpec,
    with_devices,
)
from symphony.supervised.render import CODE_VARIABLE, CONFIG_VARIABLE

# The settings that take effect without a restart: the supervisor uses them itself.
LIVE_SETTINGS = LIVE_PASSED_SETTINGS | {
    "restart_policy",
    "termination_grace_period",
    "stop_command",
    "starts_after",
    "log_limit",
}
_KEPT = ("run_id", "run_name", "launched")


def snapshot(manifest: Mapping[str, Any], secrets: Mapping[str, str]) -> Snapshot:
    """Return the snapshot of a manifest. ``secrets`` are the digests of the secrets."""
    services = manifest["services"]
    ports = {int(addr.rpartition(":")[2]): name for name, addr in services.items()}
    encrypted = {name for name in services if variable(name) in manifest["env"]}
    replicas = replicated_services(manifest["env"])
    shown_services = {}
    for name, addr in services.items():
        shown_services[name] = f"{addr} (encrypted)" if name in encrypted else addr
    return Snapshot(
        experiment=manifest["experiment"],
        backend=manifest["backend"],
        processes={item["name"]: _process(item, ports) for item in manifest["processes"]},
        services=shown_services,
        replicas=replicas,
        secrets=secrets,
        policies=manifest.get("policies", {}),
    )


def _process(spec: Mapping[str, Any], ports: Mapping[int, str]) -> ProcessSnapshot:
    binds = [ports[port] for port in spec["releases"] if port in ports]
    # Changed configuration files have another directory.
    omitted = [SCRATCH_VARIABLE, CONFIG_VARIABLE]
    if spec["gpus"]:
        omitted += [GPU_VARIABLE, AMD_GPU_VARIABLE]
    env = {key: value for key, value in spec["env"].items() if key not in omitted}
    start_dir, code = spec["cwd"], spec.get("code")
    if code is not None:
        # The directory of a copy differs each time the code changes.
        start_dir = os.path.relpath(start_dir, code["directory"])
        env = {key: value for key, value in env.items() if key != CODE_VARIABLE}
    return ProcessSnapshot(
        group=spec["group"],
        settings={
            "command": list(spec["argv"]),
            "start_dir": start_dir,
            "code": None if code is None else code["digest"][:SHORT_DIGEST_LENGTH],
            "preamble_cmds": list(spec["preamble"]),
            "env": env,
            "env_secrets": spec["env_secrets"],
            "configs": {
                name: digest[:SHORT_DIGEST_LENGTH]
                for name, digest in spec.get("configs", {}).items()
            },
            "starts_after": spec["starts_after"],
            "ready": _ready(spec, ports),
            "healthy": _test(spec.get("healthy"), ports),
            "restart_policy": spec.get("restart", "Never"),
            "termination_grace_period": spec["grace"],
            "stop_command": list(spec.get("stop_command", ())),
            **{name: spec.get(name, default) for name, default in PASSED_SETTINGS.items()},
            "deadline": spec.get("deadline"),
            "gpu": spec["gpus"],
            "rank_of": spec.get("unit"),
            "binds": binds,
            "connects": list(spec["connects"]),
            "log_limit": spec.get("log_limit"),
        },
        binds=binds,
        connects=spec["connects"],
        secrets=list(spec["env_secrets"].values()),
    )


def _ready(spec: Mapping[str, Any], ports: Mapping[int, str]) -> dict[str, Any] | None:
    test = _test(spec["ready"], ports)
    return None if test is None else {**test, "timeout": spec["ready_timeout"]}


def _test(test: Mapping[str, Any] | None, ports: Mapping[int, str]) -> dict[str, Any] | None:
    """Return a test of a process, with the names of services instead of addresses."""
    if not test:
        return None
    named: dict[str, Any] = {}
    for kind, value in test.items():
        if kind in ("tcp", "http"):
            _, port, *path = value
            named[kind] = [ports.get(port, port), *path]
        else:
            named[kind] = list(value) if isinstance(value, tuple) else value
    return named


def secret_digests(names: Iterable[str], find: Callable[[str], Path]) -> dict[str, str]:
    """Return a digest of the contents of each secret.

    ``find`` returns the file of a secret. Secrets whose files cannot be read are omitted.
    """
    digests: dict[str, str] = {}
    for name in names:
        import hashlib

        try:
            content = find(name).read_bytes()
        except OSError:
            continue
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def with_present_gpus(
    processes: Iterable[ProcessSpec], running: Mapping[str, Any], ended: Collection[str]
) -> tuple[tuple[ProcessSpec, ...], dict[str, int]]:
    """Give each process the GPUs that it already has.

    Return all processes, and the numbers of GPUs that processes need in addition. The GPUs of the
    processes in ``ended`` were released, so these processes keep them only if they do not change.
    """
    present = {item["name"]: item for item in running["processes"] if item["gpus"]}
    missing: dict[str, int] = {}
    result = []
    for process in processes:
        if process.gpus:
            old = present.get(process.name)
            devices = [] if old is None else old["env"][GPU_VARIABLE].split(",")
            if process.name in ended and len(devices) != process.gpus:
                devices = []
            process = with_gpus(process, devices[: process.gpus])
            if len(devices) < process.gpus:
                missing[process.name] = process.gpus - len(devices)
        result.append(process)
    return tuple(result), missing


def with_gpus(process: ProcessSpec, devices: Sequence[str]) -> ProcessSpec:
    """Return a process with the GPUs in ``devices`` in addition to those that it has."""
    present = process.env.get(GPU_VARIABLE)
    own = [*(present.split(",") if present else []), *devices]
    return with_devices(process, own)


def next_manifest(
    running: Mapping[str, Any], new: Mapping[str, Any], changes: Changes, directory: str
) -> dict[str, Any]:
    """Return the manifest of the experiment after ``changes``.

    ``directory`` is the name of the directory in which the change is prepared; see
    `symphony.supervised.record.change_directory`.
    """
    stopped = set(changes.names(REMOVED, *STARTED_AGAIN))
    previous = {
        "processes": [item for item in running["processes"] if item["name"] in stopped],
        "env": running["env"],
        "services": running["services"],
    }
    change = {
        "event": "changed",
        "at": time.time(),
        "revision": running.get("change", {}).get("revision", 0) + 1,
        "added": changes.names(ADDED),
        "removed": changes.names(REMOVED),
        "restarted": changes.names(*STARTED_AGAIN),
        "changes": changes.lines(),
        "directory": directory,
    }
    manifest = {
        **new,
        **{key: running[key] for key in _KEPT if key in running},
        "change": change,
        "previous": previous,
    }
    result: dict[str, Any] = json.loads(json.dumps(manifest))
    return result
