"""The probes in process-compose files, which become readiness tests and probes of Kubernetes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from symphony.importing.process_compose_values import Values

# A process for whose line process-compose waits can take any time until it is ready.
_LOG_TIMEOUT_SECONDS = 600
_MIN_TIMEOUT_SECONDS = 60
_OWN_HOSTS = ("127.0.0.1", "0.0.0.0", "::1", "localhost")
# The fields of a probe of Kubernetes.
_FIELDS = {
    "initial_delay_seconds": "initialDelaySeconds",
    "period_seconds": "periodSeconds",
    "timeout_seconds": "timeoutSeconds",
    "failure_threshold": "failureThreshold",
}


def add_probes(
    settings: dict[str, Any], name: str, given: Mapping[str, Any], values: Values
) -> None:
    """Add the tests of a process to its settings. ``name`` is the name of the process."""
    if given.get("ready_log_line"):
        settings["ready"] = {"log": str(given["ready_log_line"]), "timeout": _LOG_TIMEOUT_SECONDS}
    for key, add in (("readiness_probe", _add_readiness), ("liveness_probe", _add_liveness)):
        probe = given.get(key)
        if probe is None:
            continue
        try:
            add(settings, name, probe, values.below(key))
        except (TypeError, ValueError, AttributeError, KeyError):
            fix = "write for example ready: {command: [check.sh], timeout: 30}"
            values.below(key).omit("the value has an unexpected form", fix)


def _add_readiness(
    settings: dict[str, Any], name: str, probe: Mapping[str, Any], values: Values
) -> None:
    period = max(1, int(probe.get("period_seconds", 10)))
    failures = max(1, int(probe.get("failure_threshold", 3)))
    timeout = int(probe.get("initial_delay_seconds", 0)) + period * failures
    if int(probe.get("success_threshold", 1)) > 1:
        values.below("success_threshold").omit("one success is enough")
    if "timeout_seconds" in probe:
        values.below("timeout_seconds").omit("symphony sets the time limit of one test")
    ready: dict[str, Any]
    if probe.get("exec"):
        ready = {"command": _command(probe["exec"], values)}
    else:
        http = probe["http_get"]
        settings["exposes"] = {name: _port(http, values)}
        ready = {"http": [name, values.text(http.get("path") or "/")]}
        _report_options(http, values.below("http_get"))
    settings["ready"] = {**ready, "timeout": max(_MIN_TIMEOUT_SECONDS, timeout)}


def _report_options(http: Mapping[str, Any], values: Values) -> None:
    """Report the options of an HTTP request that have no equivalent."""
    if str(http.get("host") or _OWN_HOSTS[0]) not in _OWN_HOSTS:
        values.below("host").omit("the test runs against the process itself")
    if http.get("scheme", "http") != "http" or http.get("headers"):
        fix = "use ready.command with curl"
        values.omit("the test is a GET request without headers", fix)
    if str(http.get("status_code", "200")) != "200":
        values.below("status_code").omit("the codes 200 to 399 are accepted")


def _add_liveness(
    settings: dict[str, Any], _name: str, probe: Mapping[str, Any], values: Values
) -> None:
    fields: dict[str, Any] = {}
    if probe.get("exec"):
        fields["exec"] = {"command": _command(probe["exec"], values)}
    else:
        http = probe["http_get"]
        path = values.text(http.get("path") or "/")
        fields["httpGet"] = {"port": _port(http, values), "path": path}
    for key, field in _FIELDS.items():
        if key in probe:
            fields[field] = int(probe[key])
    settings["container_yml"] = {"livenessProbe": fields}
    values.omit("only Kubernetes restarts a process whose test fails")


def _command(test: Mapping[str, Any], values: Values) -> list[str]:
    line = values.shell_line(test["command"])
    if test.get("working_dir"):
        line = f"cd {shlex.quote(values.text(test['working_dir']))} && {line}"
    return ["sh", "-c", line]


def _port(http: Mapping[str, Any], values: Values) -> int | str:
    text = values.text(http.get("port") or (443 if http.get("scheme") == "https" else 80))
    return int(text) if text.isdecimal() else text
