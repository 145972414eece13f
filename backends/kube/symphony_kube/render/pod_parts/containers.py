"""Render a process as a container. Pure."""

from __future__ import annotations

import math
import posixpath
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings.table import Settings
from symphony.plan.plan import Plan, PlannedProcess
from symphony.plan.shell import argv
from symphony.support.names import join_names
from symphony_kube.api.labels import KEYS, SECRETS
from symphony_kube.render.container_scripts import (
    SHELL,
    is_starter,
    late_centiseconds,
    script,
    shell_command,
    stop_command,
    with_first_process,
)
from symphony_kube.render.file_objects.code_volumes import (
    CODE_DIRECTORY,
    CODE_VARIABLE,
    start_directory,
)
from symphony_kube.render.file_objects.configs import CONFIG_DIRECTORY, CONFIG_VARIABLE
from symphony_kube.render.given_fields.merge import merge, to_plain_data
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.pod_parts.rank_launcher import LAUNCHER
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.shared_variables import with_shared_environment
from symphony_kube.render.sync import restarts_in_place, with_restarts_in_place
from symphony_kube.render.text import Object, check_variable_names, env_vars, escape, port_name

DEFAULT_GRACE_SECONDS = 30
_QUANTITY = re.compile(r"(?P<number>[0-9]*\.?[0-9]+|[0-9]+\.)(?P<unit>[A-Za-z]*([0-9+-]+)?)")
DEFAULT_READY_TIMEOUT_SECONDS = 60.0
# The kubelet tests readiness every second. The kubelet tolerates any number of failures, so a
# process that has become ready stays ready. On every backend, the programs that observe the
# experiment check the readiness timeout, so the kubelet does not need to.
_PROBE_SETTINGS = {"periodSeconds": 1, "failureThreshold": 2**31 - 1}
_NETWORK_PROBE_SECONDS = 1
_COMMAND_PROBE_SECONDS = 10


def check_images(plan: Plan, options: RenderOptions) -> None:
    """Raise `SpecError` if a process has no image."""
    if options.image:
        return
    without_image = [
        process
        for process in plan
        if not process.container_image and not process.settings.container_yml.get("image")
    ]
    if not without_image:
        return
    paths = [process.path for process in without_image]
    if len(paths) == 1:
        what = f"process {paths[0]!r} has"
    else:
        what = f"processes {join_names(paths, limit=20)} have"
    raise SpecError(
        f"{what} no container_image: a container runs from an image; set container_image, or set "
        "an "
        'image for all processes without one: --image IMAGE, or image="IMAGE" of the cluster',
        path=(*without_image[0].document_path, "container_image"),
    )


def container(
    process: PlannedProcess,
    ports: list[Object],
    mounts: list[Object] | None,
    context: RenderContext,
    *,
    is_judged_by_exit_code: bool = False,
) -> Object:
    """Return the rendered container for a process.

    If ``is_judged_by_exit_code`` is true, Kubernetes decides by the exit code of the container
    whether the process has failed.
    """
    settings = process.settings
    result: Object = {"name": process.name}
    image = process.container_image or context.options.image
    if image:
        result["image"] = image
    if settings.image_pull_policy:
        result["imagePullPolicy"] = settings.image_pull_policy
    has_script = is_judged_by_exit_code and settings.healthy is not None
    result.update(_start(process, context.options, has_script=has_script))
    if ports:
        result["ports"] = ports
    result["env"] = _environment(process, context)
    amounts = resources(settings, context.options.gpu_resource)
    if amounts:
        result["resources"] = amounts
    if mounts:
        result["volumeMounts"] = mounts
    if settings.tty:
        result.update({"stdin": True, "tty": True})
    result.update(_probes(process))
    if settings.container_yml:
        result = _apply_override(process, result)
    if context.shares_environment:
        result = with_shared_environment(result, context.scope)
    return result


def _apply_override(process: PlannedProcess, rendered: Object) -> Object:
    """Return a rendered container with the fields of container_yml merged into it."""
    description = f"container_yml of process {process.path!r}"
    fields = to_plain_data(process.settings.container_yml, description)
    result = merge(rendered, fields)
    if result.get("name") != process.name:
        raise SpecError(
            f"{description} changes the name of the container, by which symphony finds it; "
            "remove name"
        )
    return result


# --- the command ---


def _start(process: PlannedProcess, options: RenderOptions, *, has_script: bool) -> Object:
    """Return the fields of a container that start the program, which can be restarted in place.

    With ``has_script``, the first process is a script of symphony if the command is known.
    """
    fields = _command(process)
    if restarts_in_place(process, options):
        return with_restarts_in_place(fields)
    if (process.settings.per_pod or 1) > 1:
        return _with_launcher(process, fields)
    command = fields.get("command", [])
    if is_starter(command) or (command and has_script):
        words = [*command, *fields.pop("args", ())]
        fields["command"] = with_first_process(words)
    return fields


def _command(process: PlannedProcess) -> Object:
    """Return a container's command, arguments and working directory."""
    result: Object = {}
    needs_shell = process.cmds is not None
    # Kubernetes accepts only an absolute working directory. A relative start_dir is relative to the
    # image's working directory, so a shell has to change to the start directory.
    relative_dir = _relative_start_dir(process)
    setup = [_change_directory(relative_dir)] if relative_dir is not None else []
    if setup or process.preamble_cmds:
        if not process.command and not needs_shell:
            setting = _setting_with_shell(process, has_directory=bool(setup))
            raise SpecError(
                f"process {process.path!r} has {setting} and no command: a shell must run first, "
                "and it does not know the entry point of the image; set command=, cmd= or cmds="
            )
        needs_shell = True
    if needs_shell:
        _, _, *arguments = argv(process, SHELL, first=setup)
        result["command"] = [escape(word) for word in shell_command(arguments)]
    else:
        if process.command:
            result["command"] = [escape(word) for word in process.command]
        if process.args:
            result["args"] = [escape(word) for word in process.args]
    directory = start_directory(process)
    if directory is not None and posixpath.isabs(directory):
        result["workingDir"] = directory
    return result


def _setting_with_shell(process: PlannedProcess, *, has_directory: bool) -> str:
    """Return the setting because of which a shell runs before the command of a process."""
    if has_directory:
        return "a relative start_dir"
    # A plan contains the line for the mask as one of the lines.
    has_own_lines = len(process.preamble_cmds) > (process.settings.umask is not None)
    return "preamble_cmds" if has_own_lines else "umask"


def _with_launcher(process: PlannedProcess, fields: Object) -> Object:
    """Return the fields of a container that starts several ranks; see `rank_launcher`."""
    if "command" not in fields:
        raise SpecError(
            f"process {process.path!r} has per_pod and no command: a shell starts the ranks, and "
            "it does not know the entry point of the image; set command=, cmd= or cmds="
        )
    grace = process.pod.termination_grace_period
    seconds = DEFAULT_GRACE_SECONDS if grace is None else grace
    stop = [str(int(stop_signal(process))), str(late_centiseconds(seconds))]
    arguments = [str(process.settings.per_pod), str(seconds), escape(script("stop")), *stop]
    command = [SHELL, "-c", escape(LAUNCHER), SHELL, *arguments, *fields["command"]]
    rest = {key: value for key, value in fields.items() if key not in ("command", "args")}
    return {**rest, "command": [*command, *fields.get("args", ())]}


def _relative_start_dir(process: PlannedProcess) -> str | None:
    """Return the start directory if it is relative, or None otherwise.

    The result is also None if ``container_yml`` sets or removes the working directory.
    """
    directory = start_directory(process)
    if directory is None or posixpath.isabs(directory):
        return None
    return None if "workingDir" in process.settings.container_yml else directory


def _change_directory(directory: str) -> str:
    """Return the shell command that changes to a relative directory.

    CDPATH does not affect the command.
    """
    return f"cd {shlex.quote(f'./{directory}')}"


def _environment(process: PlannedProcess, context: RenderContext) -> list[Object]:
    """Return a container's environment variables.

    In Kubernetes, a variable can refer only to variables that precede it in the list.
    """
    env = process.env
    if not env.keys() <= context.checked_variables:
        check_variable_names(env, f"process {process.path!r}")
        context.checked_variables.update(env)
    common_names = context.common_variables.keys()
    if not common_names.isdisjoint(env):
        env = {key: value for key, value in env.items() if key not in common_names}
    own = context.plan.own_env(process)
    if process.name in context.archives:
        own[CODE_VARIABLE] = CODE_DIRECTORY
    if process.configs:
        own[CONFIG_VARIABLE] = CONFIG_DIRECTORY
    common = context.common_env
    if not common_names.isdisjoint(own):
        common = [variable for variable in common if variable["name"] not in own]
    from_secrets: list[Object] = []
    if process.settings.env_secrets or process.keys:
        from_secrets = _secret_variables(process, context)
    return [*env_vars(env), *from_secrets, *common, *env_vars(own)]


def _secret_variables(process: PlannedProcess, context: RenderContext) -> list[Object]:
    """Return the variables whose values come from Secrets."""
    secrets = context.plan.env_secrets(process)
    check_variable_names(secrets, f"process {process.path!r}")
    secrets_name = context.scope.object_name(SECRETS, "Secret")
    keys_name = context.scope.object_name(KEYS, "Secret")
    variables = [_secret_variable(name, secrets_name, key) for name, key in secrets.items()]
    variables += [_secret_variable(name, keys_name, name) for name in process.keys]
    return variables


def _secret_variable(name: str, secret: str, key: str) -> Object:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


# --- resources ---


def resources(settings: Settings, gpu_resource: str | None) -> dict[str, dict[str, str]]:
    """Return the resource requests and limits.

    ``gpu_resource`` is the resource of GPUs unless the settings name another one. GPUs are omitted
    if it is None.
    """
    amounts = dict(settings.resource_limit)
    gpus, own_resource = amounts.pop("gpu", None), amounts.pop("gpu_resource", None)
    limits = {key: str(value) for key, value in amounts.items()}
    if gpu_resource and gpus is not None:
        limits[own_resource or gpu_resource] = str(gpus)
    result = {}
    if settings.resource_request:
        result["requests"] = dict(settings.resource_request)
    if limits:
        result["limits"] = limits
    ranks = settings.per_pod or 1
    if ranks == 1:
        return result
    for kind, of_rank in result.items():
        result[kind] = {name: multiplied(amount, ranks) for name, amount in of_rank.items()}
    return result


def multiplied(quantity: str, count: int) -> str:
    """Return a multiple of a quantity.

    >>> multiplied("500m", 8), multiplied("1.5Gi", 2), multiplied("1e3", 2)
    ('4000m', '3.0Gi', '2e3')
    """
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise SpecError(f"the quantity {quantity!r} cannot be multiplied; write it as a number")
    return f"{Decimal(match['number']) * count}{match['unit']}"


# --- probes ---


def _probes(process: PlannedProcess) -> Object:
    """Return the fields for the probes of a container.

    A process whose readiness is determined from its log gets no readiness probe, because symphony
    reads the log itself. The test whether the process still works begins when it is ready. The
    kubelet knows this from a startup probe. Otherwise, the test waits for as long as the process
    may take.
    """
    ready, healthy = process.settings.ready, process.settings.healthy
    result: Object = {}
    if ready is not None and "log" not in ready:
        seconds = _COMMAND_PROBE_SECONDS if "command" in ready else _NETWORK_PROBE_SECONDS
        probe = {**_handler(process, ready), "timeoutSeconds": seconds, **_PROBE_SETTINGS}
        result["readinessProbe"] = probe
        if healthy is not None:
            result["startupProbe"] = probe
            # Once the process was ready, more tests change nothing. A kubelet reports a limited
            # number of failures for each Pod, and those of the other test would be missing.
            result["readinessProbe"] = {**probe, "periodSeconds": healthy["every"]}
    if healthy is not None:
        # A kubelet that starts a container again can regard it as ready for about a second, because
        # it was ready before.
        delay = healthy["every"]
        if ready is not None and "log" in ready:
            delay = max(delay, math.ceil(ready["timeout"]))
        result["livenessProbe"] = {
            **_handler(process, healthy),
            "timeoutSeconds": healthy["timeout"],
            "initialDelaySeconds": delay,
            "periodSeconds": healthy["every"],
            "failureThreshold": healthy["failures"],
        }
    return result


def _handler(process: PlannedProcess, test: Mapping[str, Any]) -> Object:
    """Return the field of a probe that contains the test.

    A Kubernetes HTTP probe accepts every status code from 200 to 399.
    """
    if "tcp" in test:
        return {"tcpSocket": {"port": process.endpoint(test["tcp"]).port}}
    if "http" in test:
        service, path = test["http"]
        return {"httpGet": {"path": path, "port": process.endpoint(service).port}}
    command = _in_environment(process, test["command"])
    return {"exec": {"command": [escape(word) for word in command]}}


def _in_environment(process: PlannedProcess, command: Sequence[str] | str) -> list[str]:
    """Return the command that runs a command or a shell line in the environment of a process.

    The kubelet runs a command in the container's working directory. If the process has a relative
    start_dir or a preamble, a shell first changes to that directory and runs the preamble, as it
    does for the process itself.
    """
    words = shell_command([command]) if isinstance(command, str) else list(command)
    setup = list(process.preamble_cmds)
    relative_dir = _relative_start_dir(process)
    if relative_dir is not None:
        setup.insert(0, _change_directory(relative_dir))
    if setup:
        lines = [f"{{ {line}\n}} </dev/null >&2 || exit" for line in setup]
        return shell_command(["\n".join([*lines, 'exec "$@"']), SHELL, *words])
    return words


# --- the end ---


def stop_arguments(
    process: PlannedProcess, grace: int, *, report: bool, failure: bool, mounted: bool
) -> list[str]:
    """Return the command that stops the program of a process; see `stop_command`."""
    command = []
    if process.settings.stop_command is not None:
        command = _in_environment(process, process.settings.stop_command)
    return stop_command(
        stop_signal(process),
        grace,
        group=bool(process.settings.signal_group),
        report=report,
        failure=failure,
        command=command,
        mounted=mounted,
    )


def stop_signal(process: PlannedProcess) -> signal.Signals:
    """Return the signal that stops the program of a process."""
    return signal.Signals[f"SIG{process.settings.stop_signal or 'TERM'}"]


def with_stop_signal(process: PlannedProcess, rendered: Object) -> Object:
    """Return a container whose first process receives the signal of the program instead of TERM.

    The container is unchanged if the signal is TERM, or if its first process is not the program. A
    signal of the user is kept.
    """
    number = stop_signal(process)
    lifecycle = rendered.get("lifecycle") or {}
    is_first_process = not is_starter(rendered.get("command") or ())
    if number == signal.SIGTERM or not is_first_process or "stopSignal" in lifecycle:
        return rendered
    return {**rendered, "lifecycle": {**lifecycle, "stopSignal": number.name}}


def with_stop_hook(
    process: PlannedProcess, rendered: Object, grace: int, *, failure: bool, mounted: bool
) -> Object:
    """Return a container in which a script sends the signal that stops the program.

    With ``mounted``, the container mounts the script, and does not list it. Kubernetes does not run
    hooks without a grace period. A hook of the user is kept. If Kubernetes tests whether the
    process still works, the script reports the stop, which Kubernetes itself does not. With
    ``failure``, the exit code then is not 0.
    """
    lifecycle = rendered.get("lifecycle") or {}
    if grace <= 0 or "preStop" in lifecycle:
        return rendered
    report = "livenessProbe" in rendered
    command = stop_arguments(process, grace, report=report, failure=failure, mounted=mounted)
    hook = {"exec": {"command": command}}
    return {**rendered, "lifecycle": {**lifecycle, "preStop": hook}}


# --- ports ---


def ports(unit: PlannedUnit) -> dict[str, list[Object]]:
    """Return the ports of each container in a Pod.

    If a service belongs to a group, its port is set on the group's first container.
    """
    owners = [(process.name, process) for process in unit.processes]
    if unit.is_group:
        owners.insert(0, (unit.name, unit.processes[0]))
    result: dict[str, list[Object]] = {}
    taken: set[str] = set()
    for owner, process in owners:
        for endpoint in process.serves:
            if endpoint.owner != owner:
                continue
            name = port_name(endpoint.service, taken)
            taken.add(name)
            port = {"name": name, "containerPort": endpoint.port}
            result.setdefault(process.name, []).append(port)
    return result
