"""A process as a container. Pure."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings import Settings
from symphony.names import join_names
from symphony.plan.resolve import Plan, PlannedProcess, argv
from symphony_kube.api.labels import KEYS, SECRETS
from symphony_kube.render.context import Context, Group
from symphony_kube.render.merge import merged, plain
from symphony_kube.render.options import Options
from symphony_kube.render.text import Object, check_variables, escaped, port_name, variables

SHELL = "/bin/sh"
DEFAULT_READY_TIMEOUT = 60.0
# A test is tried every second, for as long as it takes, and a process that was ready once is not tested away: how
# long it may take is the observers' to judge, as it is on every backend.
_TRIES = {"periodSeconds": 1, "failureThreshold": 2**31 - 1}
_NETWORK_TIMEOUT, _COMMAND_TIMEOUT = 1, 10


def check_images(plan: Plan, options: Options) -> None:
    """Refuse a plan of which a process has no image."""
    if options.image:
        return
    without = [
        process
        for process in plan
        if not process.container_image and not process.settings.container_yml.get("image")
    ]
    if without:
        paths = [process.path for process in without]
        what = (
            f"process {paths[0]!r} has"
            if len(paths) == 1
            else f"processes {join_names(paths, limit=20)} have"
        )
        raise SpecError(
            f"{what} no container_image: a container runs from an image; set container_image, or give one for all that "
            'have none: --image IMAGE, or image="IMAGE" of the cluster',
            path=("processes", without[0].name, "container_image"),
        )


def container(
    process: PlannedProcess, ports: list[Object], mounts: list[Object] | None, context: Context
) -> Object:
    """The container of a process."""
    settings = process.settings
    result: Object = {"name": process.name}
    image = process.container_image or context.options.image
    if image:
        result["image"] = image
    if settings.image_pull_policy:
        result["imagePullPolicy"] = settings.image_pull_policy
    result.update(_program(process))
    if ports:
        result["ports"] = ports
    result["env"] = _environment(process, context)
    needs = resources(settings, context.options.gpu_resource)
    if needs:
        result["resources"] = needs
    if mounts:
        result["volumeMounts"] = mounts
    if settings.ready is not None:
        result.update(_readiness(process, settings.ready, context))
    if settings.container_yml:
        return _with_own(process, result)
    return result


def _with_own(process: PlannedProcess, rendered: Object) -> Object:
    who = f"container_yml of process {process.path!r}"
    result = merged(rendered, plain(process.settings.container_yml, who))
    if result.get("name") != process.name:
        raise SpecError(
            f"{who} changes the name of the container, by which symphony finds it; leave name out"
        )
    return result


# --- what runs ---


def _program(process: PlannedProcess) -> Object:
    folder = process.start_dir
    relative = folder is not None and not posixpath.isabs(folder)
    where: Object = {} if folder is None or relative else {"workingDir": folder}
    first = [_enter(folder)] if folder is not None and relative else []
    if process.cmds is not None or ((first or process.preamble_cmds) and process.command):
        shell, *rest = argv(process, SHELL, first=first)
        return {"command": [shell, *map(escaped, rest)], **where}
    if not process.command and (first or process.preamble_cmds):
        what = "a relative start_dir" if first else "preamble_cmds"
        raise SpecError(
            f"process {process.path!r} has {what} and no command: a shell has to run first, and then it does not know "
            "the image's own entry point; give it command=, cmd= or cmds="
        )
    result: Object = {}
    if process.command:
        result["command"] = [escaped(word) for word in process.command]
    if process.args:
        result["args"] = [escaped(word) for word in process.args]
    return {**result, **where}


def _enter(folder: str) -> str:
    """The line that goes to a folder below the image's working directory, wherever CDPATH leads."""
    return f"cd {shlex.quote(f'./{folder}')}"


def _environment(process: PlannedProcess, context: Context) -> list[Object]:
    env = process.env
    if not env.keys() <= context.checked:
        check_variables(env, f"process {process.path!r}")
        context.checked.update(env)
    own = env if context.shared_names.isdisjoint(env) else _without(env, context.shared_names)
    identity = {"SYMPHONY_ROLE": process.name, "SYMPHONY_GROUP": process.group or ""}
    secrets = _secrets(process, context) if process.settings.env_secrets or process.keys else []
    return [*variables(own), *secrets, *context.shared_env, *variables(identity)]


def _secrets(process: PlannedProcess, context: Context) -> list[Object]:
    given = context.plan.env_secrets(process)
    check_variables(given, f"process {process.path!r}")
    owners = {owner: context.scope.object_name(owner, "Secret") for owner in (SECRETS, KEYS)}
    found = [(SECRETS, key, secret) for key, secret in given.items()] + [
        (KEYS, key, key) for key in process.keys
    ]
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": owners[owner], "key": secret}}}
        for owner, key, secret in found
    ]


def _without(env: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key not in names}


# --- what it needs ---


def resources(settings: Settings, gpu_resource: str | None) -> dict[str, dict[str, str]]:
    """The requests and limits; without GPUs where nobody says what they are called."""
    limits = {key: str(value) for key, value in settings.resource_limit.items() if key != "gpu"}
    if gpu_resource and "gpu" in settings.resource_limit:
        limits[gpu_resource] = str(settings.resource_limit["gpu"])
    found = {"requests": dict(settings.resource_request), "limits": limits}
    return {key: amounts for key, amounts in found.items() if amounts}


# --- when it is ready ---


def _readiness(process: PlannedProcess, ready: Mapping[str, Any], context: Context) -> Object:
    """The probe for a readiness test; a log has none, since whoever launches watches it.

    To an HTTP probe of Kubernetes every answer from 200 to 399 is one of readiness.
    """
    addresses = context.plan.addresses
    if "tcp" in ready:
        probe: Object = {
            "tcpSocket": {"port": addresses[ready["tcp"]].port},
            "timeoutSeconds": _NETWORK_TIMEOUT,
        }
    elif "http" in ready:
        service, path = ready["http"]
        request = {"path": path, "port": addresses[service].port}
        probe = {"httpGet": request, "timeoutSeconds": _NETWORK_TIMEOUT}
    elif "command" in ready:
        probe = {
            "exec": {"command": _test_command(process, ready["command"])},
            "timeoutSeconds": _COMMAND_TIMEOUT,
        }
    else:
        return {}
    return {"readinessProbe": {**probe, **_TRIES}}


def _test_command(process: PlannedProcess, command: list[str]) -> list[str]:
    """A test as it runs in the folder of its process, behind its preamble; a kubelet's own folder is the image's."""
    folder = process.start_dir
    first = [_enter(folder)] if folder is not None and not posixpath.isabs(folder) else []
    before = [f"{{ {line}\n}} </dev/null >&2 || exit" for line in (*first, *process.preamble_cmds)]
    if before:
        command = [SHELL, "-c", "\n".join([*before, 'exec "$@"']), SHELL, *command]
    return [escaped(word) for word in command]


# --- its ports ---


def ports(group: Group, context: Context) -> dict[str, list[Object]]:
    """The ports of the services that a Pod serves, by process; those of a group are on its first container."""
    result: dict[str, list[Object]] = {}
    taken: set[str] = set()
    owners = [(process.name, process.name) for process in group.processes]
    if group.group:
        owners.insert(0, (group.name, group.processes[0].name))
    for owner, process in owners:
        for endpoint in context.served.get(owner, ()):
            name = port_name(endpoint.service, taken)
            taken.add(name)
            result.setdefault(process, []).append({"name": name, "containerPort": endpoint.port})
    return result
