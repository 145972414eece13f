"""The probes in process-compose files, which become readiness tests and health tests."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from symphony.importing.process_compose_values import Values

# A process for whose line process-compose waits can take any time until it is ready.
_LOG_TIMEOUT_SECONDS = 600
_MIN_TIMEOUT_SECONDS = 60
_OWN_HOSTS = ("127.0.0.1", "0.0.0.0", "::1", "localhost")
# The fields of a liveness probe that are settings of a health test.
_FIELDS = {"period_seconds": "every", "failure_threshold": "failures", "timeout_seconds": "timeout"}


def add_probes(
    settings: dict[str, Any], name: str, given: Mapping[str, Any], values: Values
) -> None:
    """Add the tests of a process to its settings. ``name`` is the name of the process."""
    if given.get("ready_log_line"):
        settings["ready"] = {"log": str(given["ready_log_line"]), "timeout": _LOG_TIMEOUT_SECONDS}
    for key, add, example in (
        ("readiness_probe", _add_readiness, "ready: {command: [check.sh], timeout: 30}"),
        ("liveness_probe", _add_liveness, "healthy: {command: [check.sh], every: 10}"),
    ):
        probe = given.get(key)
        if probe is None:
            continue
        try:
            add(settings, name, probe, values.below(key))
        except (TypeError, ValueError, AttributeError, KeyError):
            fix = f"write for example {example}"
            values.below(key).omit("the value has an unexpected form", fix)


def _add_readiness(
    settings: dict[str, Any], name: str, probe: Mapping[str, Any], values: Values
) -> None:
    period = max(1, int(probe.get("period_seconds", 10)))
    failures = max(1, int(probe.get("failure_threshold", 3)))
    timeout = int(probe.get("initial_delay_seconds", 0)) + period * failures
    _report_successes(probe, values)
    if "timeout_seconds" in probe:
        values.below("timeout_seconds").omit("symphony sets the time limit of one test")
    test = _test(settings, name, probe, values)
    settings["ready"] = {**test, "timeout": max(_MIN_TIMEOUT_SECONDS, timeout)}


def _add_liveness(
    settings: dict[str, Any], name: str, probe: Mapping[str, Any], values: Values
) -> None:
    limits = {_FIELDS[key]: int(probe[key]) for key in _FIELDS if key in probe}
    # The default of process-compose replaces smaller numbers.
    limits = {key: value for key, value in limits.items() if value >= 1}
    _report_successes(probe, values)
    if int(probe.get("initial_delay_seconds", 0)) > limits.get("every", 10):
        values.below("initial_delay_seconds").omit(
            "the first test begins after period_seconds, or when the process is ready",
            "set ready if the process needs more time",
        )
    settings["healthy"] = {**_test(settings, name, probe, values), **limits}


def _report_successes(probe: Mapping[str, Any], values: Values) -> None:
    if int(probe.get("success_threshold", 1)) > 1:
        values.below("success_threshold").omit("one success is enough")


def _test(
    settings: dict[str, Any], name: str, probe: Mapping[str, Any], values: Values
) -> dict[str, Any]:
    """Return the test of a probe. The port of an HTTP request becomes that of a service."""
    if probe.get("exec"):
        return {"command": _command(probe["exec"], values)}
    http = probe["http_get"]
    port = _port(http, values)
    services = settings.setdefault("exposes", {})
    service = name if services.get(name, port) == port else f"{name}-health"
    services[service] = port
    _report_options(http, values.below("http_get"))
    return {"http": [service, values.text(http.get("path") or "/")]}


def _report_options(http: Mapping[str, Any], values: Values) -> None:
    """Report the options of an HTTP request that have no equivalent."""
    if str(http.get("host") or _OWN_HOSTS[0]) not in _OWN_HOSTS:
        values.below("host").omit("the test runs against the process itself")
    if http.get("scheme", "http") != "http" or http.get("headers"):
        fix = "use ready.command with curl"
        values.omit("the test is a GET request without headers", fix)
    if str(http.get("status_code", "200")) != "200":
        values.below("status_code").omit("the codes 200 to 399 are accepted")


def _command(test: Mapping[str, Any], values: Values) -> list[str]:
    line = values.shell_line(test["command"])
    if test.get("working_dir"):
        line = f"cd {shlex.quote(values.text(test['working_dir']))} && {line}"
    return ["sh", "-c", line]


def _port(http: Mapping[str, Any], values: Values) -> int | str:
    text = values.text(http.get("port") or (443 if http.get("scheme") == "https" else 80))
    return int(text) if text.isdecimal() else text
