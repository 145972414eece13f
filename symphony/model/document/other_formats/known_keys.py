"""The keys of compose files, Kubernetes objects, torchx and other programs, and the keys of
symphony for them.

A key of another program is an unknown key in an experiment file. The error message then contains
the key of symphony with the user's value. ``symphony import`` converts whole files with the same
table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from symphony.model.document.other_formats import values
from symphony.model.document.other_formats.translation import (
    NOTHING,
    ForeignKey,
    Note,
    Translate,
    Translation,
    Untranslatable,
)
from symphony.model.settings.merging import deep_merged
from symphony.support.names import suggested_name


def _settings(**settings: Any) -> Translation:
    return Translation(settings=settings)


def _nothing(problem: str, fix: str = NOTHING) -> Translate:
    """Return a function that translates every value to a note."""
    return lambda _value, _name: Translation(notes=(Note(problem=problem, fix=fix),))


def _renamed(key: str) -> Translate:
    """Return a function that keeps the value under another key."""
    return lambda value, _name: Translation(settings={key: value})


def _with_note(settings: dict[str, Any], *notes: Note | None) -> Translation:
    return Translation(settings=settings, notes=tuple(note for note in notes if note is not None))


# --- the life of a process ---

_CONDITIONS = {
    "service_started": "started",
    "service_healthy": "ready",
    "service_completed_successfully": "succeeded",
    "process_started": "started",
    "process_healthy": "ready",
    "process_log_ready": "ready",
    "process_completed_successfully": "succeeded",
}


def _depends_on(value: Any, _name: str) -> Translation:
    if not isinstance(value, Mapping):
        names = [value] if isinstance(value, str) else values.names(value)
        return _settings(starts_after={values.process_name(name): "ready" for name in names})
    awaited: dict[str, str] = {}
    notes: list[Note | None] = []
    for name, item in value.items():
        condition = str((item or {}).get("condition", "service_started"))
        if condition == "process_completed":
            notes.append(Note(problem=f"{name}: no condition includes failures"))
        awaited[values.process_name(name)] = _CONDITIONS.get(condition, "succeeded")
        if values.flag((item or {}).get("restart")):
            notes.append(Note(problem=f"{name}: a process does not restart with another process"))
    return _with_note({"starts_after": awaited}, *notes)


def _healthcheck(value: Any, _name: str) -> Translation:
    test = value.get("test")
    if values.flag(value.get("disable")) or test in (["NONE"], "NONE"):
        return Translation(notes=(Note(problem="there is no test unless ready is set"),))
    if isinstance(test, str):
        command = ["sh", "-c", test]
    else:
        kind, *rest = values.names(test)
        command = {"CMD": rest, "CMD-SHELL": ["sh", "-c", *rest]}[kind]
    if not command:
        raise ValueError(test)
    interval = values.seconds(value.get("interval", "30s"))
    limit = values.seconds(value.get("timeout", "30s"))
    retries = int(value.get("retries", 3))
    timeout = values.seconds(value.get("start_period", "0s")) + retries * (interval + limit)
    note = None
    if "start_interval" in value:
        note = Note(problem="symphony sets the time between two tests", key="start_interval")
    ready = {"command": command, "timeout": values.number(max(timeout, 1))}
    return _with_note({"ready": ready}, note)


def health_limits(healthcheck: Mapping[str, Any]) -> dict[str, Any]:
    """Return the times and the number of tests of a health check of compose, for ``healthy``.

    Raises ValueError if one of them is invalid.
    """
    return {
        "every": max(1, math.ceil(values.seconds(healthcheck.get("interval", "30s")))),
        "failures": max(1, int(healthcheck.get("retries", 3))),
        "timeout": max(1, math.ceil(values.seconds(healthcheck.get("timeout", "30s")))),
    }


def _liveness_probe(value: Any, name: str) -> Translation:
    """Translate a liveness probe of Kubernetes or process-compose."""
    limits: dict[str, Any] = {}
    for field, key, setting in (
        ("periodSeconds", "period_seconds", "every"),
        ("failureThreshold", "failure_threshold", "failures"),
        ("timeoutSeconds", "timeout_seconds", "timeout"),
    ):
        limit = value.get(field, value.get(key))
        if limit is not None:
            limits[setting] = values.number(limit)
    service, test = _probe_test(value, name)
    return _settings(**service, healthy={**test, **limits})


def _readiness_probe(value: Any, name: str) -> Translation:
    """Translate a readiness probe of Kubernetes or process-compose."""
    period = values.number(value.get("periodSeconds", value.get("period_seconds", 10)))
    failures = values.number(value.get("failureThreshold", value.get("failure_threshold", 3)))
    delay = values.number(value.get("initialDelaySeconds", value.get("initial_delay_seconds", 0)))
    timeout = max(60, delay + period * failures)
    service, test = _probe_test(value, name)
    return _settings(**service, ready={**test, "timeout": timeout})


def _probe_test(value: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the service that a probe tests, as a setting, and the test."""
    program = value.get("exec")
    http = value.get("httpGet", value.get("http_get"))
    service = suggested_name(name)
    if program is not None:
        command = program["command"]
        argv = ["sh", "-c", command] if isinstance(command, str) else values.names(command)
        return {}, {"command": argv}
    if http is not None:
        test = {"http": [service, str(http.get("path", "/"))]}
        return {"binds": {service: int(http["port"])}}, test
    port = int((value.get("tcpSocket") or value["tcp_socket"])["port"])
    return {"binds": {service: port}}, {"tcp": service}


_POLICIES = {
    "no": "Never",
    "always": "Always",
    "unless-stopped": "Always",
    "on-failure": "OnFailure",
    "on_failure": "OnFailure",
    "none": "Never",
    "any": "Always",
    "exit_on_failure": "Never",
}


def _restart(value: Any, _name: str) -> Translation:
    policy, _, limit = str("no" if value is False else value).partition(":")
    return _restart_policy(_POLICIES[policy], max_restarts=int(limit) if limit else None)


def _autorestart(value: Any, _name: str) -> Translation:
    """Translate the key of supervisord, whose value ``unexpected`` means a failure."""
    if str(value) == "unexpected":
        return _restart_policy("OnFailure")
    return _restart_policy("Always" if values.flag(value) else "Never")


def _restart_policy(policy: str, **limits: Any) -> Translation:
    """Return a restart policy with the limits that are not None."""
    given = {key: value for key, value in limits.items() if value is not None}
    if not given or policy == "Never":
        return _settings(restart_policy=policy)
    return _settings(restart_policy={"policy": policy, **given})


def _deployed_restart(value: Mapping[str, Any]) -> Translation:
    """Translate ``restart_policy`` in ``deploy``."""
    attempts, delay = value.get("max_attempts"), value.get("delay")
    translation = _restart_policy(
        _POLICIES[str(value.get("condition", "any"))],
        max_restarts=None if attempts is None else values.number(attempts),
        backoff=None if delay is None else values.number(values.seconds(delay)),
    )
    note = None
    if value.get("window"):
        note = Note(
            problem="every attempt counts as a restart, also after a long time",
            key="restart_policy.window",
        )
    return _with_note(translation.settings, note)


def _stop_grace_period(value: Any, _name: str) -> Translation:
    return _settings(termination_grace_period=math.ceil(values.seconds(value)))


def _availability(value: Any, _name: str) -> Translation:
    """Translate the restart policy of process-compose, whose limit 0 means no limit."""
    policy = str(value.get("restart", "no"))
    backoff = value.get("backoff_seconds")
    translation = _restart_policy(
        _POLICIES[policy],
        max_restarts=values.number(value.get("max_restarts", 0)) or None,
        backoff=None if backoff is None else values.number(backoff),
    )
    note = None
    if policy == "exit_on_failure":
        note = Note(
            problem="the failure of one process does not stop the others",
            fix="set on_failure: stop in the experiment",
        )
    if values.flag(value.get("exit_on_end")):
        note = Note(
            problem="the end of one process does not stop the others",
            fix="set ends_with in the experiment to the name of the process",
        )
    return _with_note(translation.settings, note)


# --- programs and images ---


def _entrypoint(value: Any, _name: str) -> Translation:
    return _settings(command=values.words(value))


def _environment(value: Any, _name: str) -> Translation:
    env: dict[str, str] = {}
    notes: list[Note] = []
    for key, item in values.mapping(value).items():
        if item is None:
            notes.append(
                Note(
                    problem=f"{key} has no value: local and tmux pass it on from the environment",
                    fix=f"set {key} for other backends",
                    key=key,
                )
            )
        else:
            is_boolean = isinstance(item, bool)
            env[key] = str(item).lower() if is_boolean else str(item)
    return _with_note({"env": env} if env else {}, *notes)


def _build(_value: Any, name: str) -> Translation:
    repository = suggested_name(name)
    return _with_note(
        {"container_image": repository},
        Note(
            problem="an experiment declares how its images are built",
            fix=f"images: {{{repository}: {{context_directories: [{{name: app, path: .}}]}}}} "
            "at the top level",
        ),
    )


def _pull_policy(value: Any, _name: str) -> Translation:
    policies = {
        "always": "Always",
        "missing": "IfNotPresent",
        "if_not_present": "IfNotPresent",
        "never": "Never",
        "build": "IfNotPresent",
    }
    return _settings(image_pull_policy=policies[value])


# --- services ---


def service_names(name: str, ports: Collection[Any]) -> dict[str, Any]:
    """Return a service for each port. The first service has the name of the process."""
    first = suggested_name(name)
    names: dict[str, Any] = {}
    for port in dict.fromkeys(ports):
        suffix = str(port) if isinstance(port, int) else suggested_name(port[2:].split(":")[0])
        names[f"{first}-{suffix}" if names else first] = port
    return names


def _ports(value: Any, name: str) -> Translation:
    ports = values.container_ports(value)
    services, others = _services(name, ports)
    notes = [
        Note(
            problem=f"the port is {port.target}, as in the container, and not {port.published}",
            fix=f"'symphony visit NAME {suggested_name(name)}' prints the URL",
        )
        for port in ports
        if port.published is not None and port.published != port.target and port.protocol == "tcp"
    ]
    return _with_note({"exposes": services} if services else {}, *notes, *others)


def _expose(value: Any, name: str) -> Translation:
    services, notes = _services(name, values.container_ports(value))
    return _with_note({"binds": services} if services else {}, *notes)


def _services(name: str, ports: Collection[values.Port]) -> tuple[dict[str, Any], list[Note]]:
    """Return the services for TCP ports, and notes about the other ports."""
    notes = [
        Note(
            problem=f"port {port.target} is not a TCP port, and services are TCP services",
            fix="on Kubernetes, create a Service for it",
        )
        for port in ports
        if port.protocol != "tcp"
    ]
    tcp_ports = [port.target for port in ports if port.protocol == "tcp"]
    return service_names(name, tcp_ports), notes


def _port_map(value: Any, _name: str) -> Translation:
    return _settings(binds={suggested_name(key): int(port) for key, port in value.items()})


# --- resources ---


def _deploy(value: Any, name: str) -> Translation:
    settings: dict[str, Any] = {}
    notes: list[Note] = []
    for key, item in value.items():
        if key == "replicas":
            settings["replicas"] = values.number(item)
        elif key == "resources":
            translated = _compose_resources(item, name)
            settings.update(translated.settings)
            notes += translated.notes
        elif key == "restart_policy":
            translated = _deployed_restart(item)
            settings.update(translated.settings)
            notes += translated.notes
        elif key != "mode" or item != "replicated":
            notes.append(Note(problem="there is no equivalent", key=key))
    return _with_note(settings, *notes)


def _compose_resources(value: Any, _name: str) -> Translation:
    settings: dict[str, Any] = {}
    notes: list[Note] = []
    for kind, target in (("limits", "resource_limit"), ("reservations", "resource_request")):
        given = value.get(kind) or {}
        amounts: dict[str, Any] = {}
        if "cpus" in given:
            amounts["cpu"] = values.number(given["cpus"])
        if "memory" in given:
            amounts["memory"] = values.size(given["memory"])
        if amounts:
            settings[target] = amounts
        notes += [
            Note(problem="there is no equivalent", key=f"resources.{kind}.{key}")
            for key in given
            if key not in ("cpus", "memory", "devices")
        ]
    for device in (value.get("reservations") or {}).get("devices") or []:
        if "gpu" not in device.get("capabilities", []):
            problem = "a device that is not a GPU has no equivalent"
            notes.append(Note(problem=problem, fix=_CONTAINER_YML, key="resources.reservations"))
            continue
        translated = _gpus([device], _name)
        settings = deep_merged(settings, translated.settings)
        notes += translated.notes
    return _with_note(settings, *notes)


def _gpus(value: Any, _name: str) -> Translation:
    """Translate the GPUs of a service, which are a number, all, or a list of requests."""
    number = 0
    note = None
    for item in value if isinstance(value, list) else [{"count": value}]:
        if "device_ids" in item:
            number += len(item["device_ids"])
        elif str(item.get("count", "all")) in ("all", "-1"):
            number += 1
            note = Note(problem="gpu is 1 instead of all GPUs", fix="write their number")
        else:
            number += int(item["count"])
    return _with_note({"resource_limit": {"gpu": number}}, note)


def _limit(resource: str, convert: Callable[[Any], Any], key: str = "resource_limit") -> Translate:
    return lambda value, _name: Translation(settings={key: {resource: convert(value)}})


def _memory(value: Any) -> Any:
    """Return an amount of memory, which can have a unit of compose or of Kubernetes."""
    return value if str(value).endswith("i") else values.size(value)


def _kube_resources(value: Any, _name: str) -> Translation:
    """Translate the resources of a container in Kubernetes."""
    settings: dict[str, Any] = {}
    for kind, target in (("limits", "resource_limit"), ("requests", "resource_request")):
        amounts: dict[str, Any] = {}
        for key, amount in (value.get(kind) or {}).items():
            if key in ("cpu", "memory"):
                amounts[key] = amount
            elif _is_gpu(key) and target == "resource_limit" and "gpu" not in amounts:
                amounts["gpu"] = int(amount)
                if key != "nvidia.com/gpu":
                    amounts["gpu_resource"] = key
            else:
                raise KeyError(key)
        if amounts:
            settings[target] = amounts
    if not settings:
        raise ValueError(value)
    return Translation(settings=settings)


def _is_gpu(resource: str) -> bool:
    """Return whether a resource of Kubernetes is a kind of GPU, a part of one, or a TPU."""
    _, separator, name = resource.partition("/")
    return bool(separator) and name.startswith(("gpu", "mig-", "tpu"))


def _torchx_resource(value: Any, _name: str) -> Translation:
    limits: dict[str, Any] = {}
    for key, amount in value.items():
        if key == "memMB":
            limits["memory"] = f"{int(amount)}Mi"
        elif key in ("cpu", "gpu") and int(amount) > 0:
            limits[key] = int(amount)
    return _settings(resource_limit=limits)


# --- volumes ---


def _tmpfs(value: Any, _name: str) -> Translation:
    """Translate directories in memory, such as ``/run:size=64m``."""
    volumes: list[dict[str, Any]] = []
    notes: list[Note] = []
    for item in [value] if isinstance(value, str) else values.names(value):
        path, _, text = item.partition(":")
        details = {"mount_path": path, "memory": True}
        for option in filter(None, text.split(",")):
            key, _, amount = option.partition("=")
            if key == "size":
                details["size"] = values.size(amount)
            else:
                notes.append(Note(problem=f"the option {option} of {path} has no equivalent"))
        volumes.append({"empty_dir": details})
    return _with_note({"volumes": volumes}, *notes)


def _shm_size(value: Any, _name: str) -> Translation:
    return _settings(volumes=[{"shared_memory": {"size": values.size(value)}}])


# --- security and placement ---


def _security_context(key: str, convert: Callable[[Any], Any]) -> Translate:
    return lambda value, _name: Translation(
        settings={"container_yml": {"securityContext": {key: convert(value)}}}
    )


def _user(value: Any, _name: str) -> Translation:
    user, *groups = values.COLON.split(str(value))
    group = groups[0] if groups else ""
    context: dict[str, Any] = {}
    notes: list[Note] = []
    for key, text in (("runAsUser", user), ("runAsGroup", group)):
        if text.isdecimal() or values.is_reference(text):
            context[key] = int(text) if text.isdecimal() else text
        elif text:
            problem = f"Kubernetes accepts only a number, and not {text!r}"
            fix = f"container_yml: {{securityContext: {{{key}: NUMBER}}}}"
            notes.append(Note(problem=problem, fix=fix))
    settings = {"container_yml": {"securityContext": context}} if context else {}
    return _with_note(settings, *notes)


def _extra_hosts(value: Any, _name: str) -> Translation:
    """Translate further host names, which are a mapping or a list of ``name:address``."""
    if isinstance(value, Mapping):
        pairs = [[name, str(address)] for name, address in value.items()]
    else:
        pairs = [re.split("[:=]", item, maxsplit=1) for item in values.names(value)]
    aliases: list[dict[str, Any]] = []
    notes = [Note(problem="only Kubernetes sets further host names", fix="use their addresses")]
    for name, address in pairs:
        if address == "host-gateway":
            notes.append(Note(problem=f"{name} is the machine, whose address differs", key=name))
        else:
            aliases.append({"ip": address.strip("[]"), "hostnames": [name]})
    settings = {"pod_yml": {"spec": {"hostAliases": aliases}}} if aliases else {}
    return _with_note(settings, *notes)


def _sysctls(value: Any, _name: str) -> Translation:
    sysctls = [{"name": key, "value": str(item)} for key, item in values.mapping(value).items()]
    return _settings(pod_yml={"spec": {"securityContext": {"sysctls": sysctls}}})


def _annotations(value: Any, _name: str) -> Translation:
    annotations = {key: str(item) for key, item in values.mapping(value).items()}
    return _settings(pod_yml={"metadata": {"annotations": annotations}})


def _platform(value: Any, _name: str) -> Translation:
    """Translate a platform, such as ``linux/amd64``."""
    system, _, architecture = str(value).partition("/")
    if system != "linux" or not architecture or values.is_reference(value):
        return Translation(notes=(Note(problem=f"nodes run no programs for {value}"),))
    return _settings(node_selector={"kubernetes.io/arch": architecture.partition("/")[0]})


def _network_mode(value: Any, _name: str) -> Translation:
    mode = str(value)
    if mode == "host":
        return _with_note(
            {"pod_yml": {"spec": {"hostNetwork": True}}},
            Note(problem="processes on this machine always use its network"),
        )
    if mode in ("bridge", "default"):
        return Translation(notes=(Note(problem=_CONNECTED),))
    if mode == "none":
        return Translation(notes=(Note(problem="the network of a process cannot be disabled"),))
    return Translation(
        notes=(
            Note(
                problem=f"the process does not share the network of {mode.partition(':')[2]}",
                fix="on Kubernetes, put both processes into one group",
            ),
        )
    )


def _pod_field(key: str) -> Translate:
    return lambda value, _name: Translation(settings={"pod_yml": {"spec": {key: value}}})


def _replicas(value: Any, _name: str) -> Translation:
    return _settings(replicas=values.number(value))


def _max_retries(value: Any, _name: str) -> Translation:
    return _settings(job={"backoff_limit": int(value)})


def _shutdown(value: Any, _name: str) -> Translation:
    """Translate the shutdown of a process of process-compose.

    A command replaces the signal. The default of ``timeout_seconds`` is 10.
    """
    command, number = value.get("command"), value.get("signal")
    settings: dict[str, Any] = {}
    if command:
        settings["stop_command"] = command
    elif number is not None:
        settings["stop_signal"] = values.signal_name(number)
    if value.get("timeout_seconds") or command:
        settings["termination_grace_period"] = values.number(value.get("timeout_seconds", 10))
    if (
        value.get("parent_only") is not None
        and not values.flag(value["parent_only"])
        and not command
    ):
        settings["signal_group"] = True
    return _settings(**settings)


# --- the table ---

_CONNECTED = "all processes of an experiment can connect to each other"
_ALL_CONNECTED = _nothing(_CONNECTED)
_NO_TERMINAL = _nothing("a process with tty: true reads from its terminal", "set tty: true")
_POD_YML = "set it in pod_yml: {spec: {...}} for Kubernetes"
_CONTAINER_YML = "set it in container_yml for Kubernetes"
_RESOURCES = "resource_limit: {cpu: 1, memory: 512Mi, gpu: 1}"
_READY = "ready: {command: [check.sh], timeout: 30}"
_HEALTHY = "healthy: {command: [check.sh], every: 10, failures: 3}"
_RESTART = "restart_policy: OnFailure"
_MEMORY = "resource_limit: {memory: 512Mi}"


def _key(translate: Translate, example: str = "") -> ForeignKey:
    return ForeignKey(translate=translate, example=example)


def _without_equivalent(fix: str = NOTHING) -> ForeignKey:
    return _key(_nothing("there is no equivalent", fix))


# The keys of processes in other programs.
PROCESS_KEYS: dict[str, ForeignKey] = {
    # compose: the program
    "build": _key(_build, "container_image: NAME, and images: {NAME: {...}} in the experiment"),
    "entrypoint": _key(_entrypoint, "command: [python, main.py]"),
    "environment": _key(_environment, "env: {LEVEL: info}"),
    "image": _key(_renamed("container_image"), "container_image: rl:1"),
    "pull_policy": _key(_pull_policy, "image_pull_policy: Always"),
    "working_dir": _key(_renamed("start_dir"), "start_dir: work"),
    # compose: the life of a process
    "depends_on": _key(_depends_on, "starts_after: {db: ready}"),
    "healthcheck": _key(_healthcheck, _READY),
    "restart": _key(_restart, _RESTART),
    "stop_grace_period": _key(_stop_grace_period, "termination_grace_period: 30"),
    "scale": _key(_replicas, "replicas: 3"),
    # compose: services
    "expose": _key(_expose, "binds: {db: 5432}"),
    "external_links": _key(_ALL_CONNECTED),
    "links": _key(_ALL_CONNECTED),
    "network_mode": _key(_network_mode),
    "networks": _key(_ALL_CONNECTED),
    "ports": _key(_ports, "exposes: {web: 8080}"),
    # compose: resources
    "cpus": _key(_limit("cpu", values.number), "resource_limit: {cpu: 1}"),
    "deploy": _key(_deploy, f"replicas: 3, {_RESOURCES}"),
    "gpus": _key(_gpus, "resource_limit: {gpu: 1}"),
    "mem_limit": _key(_limit("memory", values.size), _MEMORY),
    "mem_reservation": _key(
        _limit("memory", values.size, "resource_request"), "resource_request: {memory: 512Mi}"
    ),
    "shm_size": _key(_shm_size, "volumes: [{shared_memory: {size: 2Gi}}]"),
    "tmpfs": _key(_tmpfs, "volumes: [{empty_dir: {mount_path: /tmp/x, memory: true}}]"),
    "ulimits": _without_equivalent("set the limits in preamble_cmds with ulimit"),
    # compose: containers
    "annotations": _key(_annotations, "pod_yml: {metadata: {annotations: {...}}}"),
    "attach": _key(_nothing("'symphony logs' shows the output of every process")),
    "blkio_config": _without_equivalent(),
    "cgroup": _without_equivalent(),
    "cgroup_parent": _without_equivalent(),
    "cpu_count": _without_equivalent("use resource_limit: {cpu: 1}"),
    "cpu_percent": _without_equivalent("use resource_limit: {cpu: 1}"),
    "cpu_period": _without_equivalent("use resource_limit: {cpu: 1}"),
    "cpu_quota": _without_equivalent("use resource_limit: {cpu: 1}"),
    "cpu_rt_period": _without_equivalent(),
    "cpu_rt_runtime": _without_equivalent(),
    "cpu_shares": _without_equivalent("use resource_request: {cpu: 1}"),
    "cpuset": _without_equivalent(),
    "credential_spec": _without_equivalent(),
    "device_cgroup_rules": _without_equivalent(),
    "dns_opt": _without_equivalent(_POD_YML),
    "dns_search": _without_equivalent(_POD_YML),
    "isolation": _without_equivalent(),
    "label_file": _without_equivalent("write labels"),
    "mac_address": _without_equivalent(),
    "mem_swappiness": _without_equivalent(),
    "memswap_limit": _without_equivalent(),
    "models": _without_equivalent(),
    "oom_kill_disable": _without_equivalent(),
    "oom_score_adj": _without_equivalent(),
    "pid": _without_equivalent(_POD_YML),
    "pids_limit": _without_equivalent(),
    "post_start": _without_equivalent(),
    "pre_stop": _without_equivalent("use stop_command"),
    "provider": _without_equivalent(),
    "cap_add": _key(_security_context("capabilities", lambda value: {"add": values.names(value)})),
    "cap_drop": _key(
        _security_context("capabilities", lambda value: {"drop": values.names(value)})
    ),
    "privileged": _key(_security_context("privileged", values.flag)),
    "read_only": _key(_security_context("readOnlyRootFilesystem", values.flag)),
    "user": _key(_user, "container_yml: {securityContext: {runAsUser: 1000}}"),
    "container_name": _key(_nothing("a process has one name, which is unique in its experiment")),
    "develop": _without_equivalent("use code, and 'symphony up --watch'"),
    "devices": _without_equivalent(_CONTAINER_YML),
    "dns": _without_equivalent(_POD_YML),
    "domainname": _without_equivalent(_POD_YML),
    "extends": _without_equivalent("use YAML anchors, or run 'symphony import' on the file"),
    "extra_hosts": _key(_extra_hosts, "pod_yml: {spec: {hostAliases: [...]}}"),
    "group_add": _without_equivalent(_POD_YML),
    "hostname": _key(_pod_field("hostname"), "pod_yml: {spec: {hostname: db}}"),
    "init": _key(_nothing("symphony stops all descendants of a process")),
    "ipc": _without_equivalent(_POD_YML),
    "logging": _key(
        _nothing("'symphony logs' shows the output of every process", "use log_limit for its size")
    ),
    "platform": _key(_platform, "node_selector: {kubernetes.io/arch: amd64}"),
    "profiles": _without_equivalent("use a parameter, as in replicas: ${NAME}"),
    "runtime": _without_equivalent(_POD_YML),
    "security_opt": _without_equivalent(_CONTAINER_YML),
    "stdin_open": _key(_NO_TERMINAL),
    "storage_opt": _without_equivalent(),
    "sysctls": _key(_sysctls, "pod_yml: {spec: {securityContext: {sysctls: [...]}}}"),
    "userns_mode": _without_equivalent(_POD_YML),
    "uts": _without_equivalent(_POD_YML),
    "volumes_from": _without_equivalent("list the volumes of both processes"),
    # Kubernetes
    "affinity": _key(_pod_field("affinity"), "pod_yml: {spec: {affinity: {...}}}"),
    "containers": _without_equivalent("describe each container as a process of a group"),
    "imagePullPolicy": _key(_renamed("image_pull_policy"), "image_pull_policy: Always"),
    "livenessProbe": _key(_liveness_probe, _HEALTHY),
    "nodeSelector": _key(_renamed("node_selector"), "node_selector: {pool: gpu}"),
    "readinessProbe": _key(_readiness_probe, _READY),
    "resources": _key(_kube_resources, _RESOURCES),
    "restartPolicy": _key(_renamed("restart_policy"), _RESTART),
    "serviceAccountName": _key(_pod_field("serviceAccountName")),
    "spec": _without_equivalent(
        "describe the containers as processes, or use pod_yml: {spec: ...}"
    ),
    "terminationGracePeriodSeconds": _key(
        _renamed("termination_grace_period"), "termination_grace_period: 30"
    ),
    "volumeMounts": _without_equivalent("use volumes, with a mount_path for each volume"),
    "workingDir": _key(_renamed("start_dir"), "start_dir: work"),
    # torchx
    "max_retries": _key(_max_retries, "job: {backoff_limit: 3}"),
    "mounts": _without_equivalent("use volumes, with a mount_path for each volume"),
    "num_replicas": _key(_replicas, "replicas: 3"),
    "port_map": _key(_port_map, "binds: {tensorboard: 6006}"),
    "resource": _key(_torchx_resource, _RESOURCES),
    # supervisord, systemd, pm2 and workflows
    **dict.fromkeys(
        ("chdir", "cwd", "directory", "workdir", "working_directory"),
        _key(_renamed("start_dir"), "start_dir: work"),
    ),
    **dict.fromkeys(
        ("exec", "program", "run", "script", "shell"), _key(_renamed("cmd"), "cmd: ./run.sh")
    ),
    **dict.fromkeys(("copies", "instances", "numprocs", "workers"), _key(_replicas, "replicas: 3")),
    **dict.fromkeys(
        ("depends", "needs", "requires"), _key(_depends_on, "starts_after: {db: ready}")
    ),
    **dict.fromkeys(("envs", "variables", "vars"), _key(_environment, "env: {LEVEL: info}")),
    **dict.fromkeys(("health", "readiness"), _key(_healthcheck, _READY)),
    **dict.fromkeys(
        ("log_file", "logfile", "stderr", "stdout", "stdout_logfile"),
        _key(_nothing("'symphony logs' shows the output of every process")),
    ),
    "autorestart": _key(_autorestart, _RESTART),
    "cpu": _key(_limit("cpu", values.number), "resource_limit: {cpu: 1}"),
    "gpu": _key(_limit("gpu", values.number), "resource_limit: {gpu: 1}"),
    "host": _key(_nothing("symphony chooses the address of each service")),
    **dict.fromkeys(("mem", "memory"), _key(_limit("memory", _memory), _MEMORY)),
    "name": _key(_nothing("the key of a process is its name")),
    "port": _key(lambda value, name: _ports([value], name), "exposes: {web: 8080}"),
    "stopwaitsecs": _key(_stop_grace_period, "termination_grace_period: 30"),
    # process-compose
    "availability": _key(_availability, _RESTART),
    "liveness_probe": _key(_liveness_probe, _HEALTHY),
    "readiness_probe": _key(_readiness_probe, _READY),
    "shutdown": _key(_shutdown, "termination_grace_period: 30"),
}

_IMPORT = "run 'symphony import FILE' to convert the file"
# The keys at the top level of other files, each with a hint.
EXPERIMENT_KEYS: dict[str, str] = {
    "apiVersion": "the file describes Kubernetes objects: write processes with their commands",
    "kind": "the file describes Kubernetes objects: write processes with their commands",
    "configs": "use volumes: [{config: {config: NAME, files: [...], mount_path: /etc/app}}]",
    "defaults": "write x-defaults: &defaults, and <<: *defaults in each process",
    "depends_on": "set starts_after on a process",
    "environment": "write env: {LEVEL: info}",
    "include": "use YAML anchors, or a Python file",
    "networks": "remove it: all processes of an experiment can connect to each other",
    "services": f"the file is a compose file: {_IMPORT}, or write processes instead of services",
    "version": "remove it",
    "volumes": "set volumes on a process, such as volumes: [{pvc: {claim: c, mount_path: /d}}]",
    "working_dir": "write start_dir: work",
}


def translate(key: str, value: Any, name: str) -> Translation | None:
    """Return the translation of a foreign key of the process ``name``, or None if the key is not
    known.

    Raises `Untranslatable` if the value has an unexpected form.
    """
    known = PROCESS_KEYS.get(key)
    if known is None:
        return None
    try:
        return known.translate(value, name)
    except (TypeError, ValueError, AttributeError, KeyError) as exc:
        raise Untranslatable(known.example) from exc
