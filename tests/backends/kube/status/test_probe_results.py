"""The last results of readiness probes, from the events of Kubernetes 1.20."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony_kube.state.ip_families import service_note
from symphony_kube.status.event_sources.probe_results import awaits_results, with_results
from symphony_kube.watch import experiment_events

NOW = 100.0
HTTP = {"httpGet": {"port": 7000, "path": "/up"}}
TCP = {"tcpSocket": {"port": 7000}}
EXEC = {"exec": {"command": ["sh", "-c", "check"]}}


def pod(probe: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "name": "web"},
        "spec": {"containers": [{"name": "web", "readinessProbe": probe}, {"name": "other"}]},
        "status": {"podIP": "10.0.0.1"},
    }


def unhealthy(message: str, container: str = "web", uid: str = "u") -> dict[str, Any]:
    return {
        "involvedObject": {"uid": uid, "fieldPath": f"spec.containers{{{container}}}"},
        "reason": "Unhealthy",
        "message": message,
    }


def running(**fields: Any) -> ExperimentStatus:
    web = {"name": "web", "state": State.RUNNING, "started": NOW - 10, **fields}
    other = ProcessStatus(name="other", state=State.RUNNING, started=NOW - 10, ready=True)
    return ExperimentStatus(name="e", backend="kube", processes=(ProcessStatus(**web), other))


@pytest.mark.parametrize(
    ("probe", "message", "result"),
    [
        (
            HTTP,
            "failed: HTTP probe failed with statuscode: 404",
            "HTTP 404 from http://10.0.0.1:7000/up",
        ),
        (
            HTTP,
            'failed: Get "http://10.0.0.1:7000/up": dial tcp 10.0.0.1:7000: connect: connection '
            "refused",
            "connection refused at 10.0.0.1:7000",
        ),
        (
            HTTP,
            'failed: Get "http://10.0.0.1:7000/up": context deadline exceeded (Client.Timeout '
            "exceeded while awaiting headers)",
            "no response from http://10.0.0.1:7000/up",
        ),
        (
            TCP,
            "failed: dial tcp 10.0.0.1:7000: connect: connection refused",
            "connection refused at 10.0.0.1:7000",
        ),
        (TCP, "failed: dial tcp 10.0.0.1:7000: i/o timeout", "no connection"),
        (
            EXEC,
            "failed: one\n\x1b[31mdb is starting up\x1b[0m\n",
            "the command failed: db is starting up",
        ),
        (EXEC, "failed: ", "the command failed"),
        (
            EXEC,
            'failed: command timed out: "sh -c check\\nexec \\"$@\\"" timed out after 10s',
            "the command takes longer than 10 s",
        ),
        (
            {**EXEC, "timeoutSeconds": 10},
            'failed: command "sh -c check" timed out',
            "the command takes longer than 10 s",
        ),
        (EXEC, "errored: rpc error: no such file", "the command failed: rpc error: no such file"),
        (
            EXEC,
            "errored and resulted in Failure state: rpc error: no such file",
            "the command failed: rpc error: no such file",
        ),
    ],
)
def test_result_has_the_words_of_all_backends(
    probe: dict[str, Any], message: str, result: str
) -> None:
    events = [unhealthy("Readiness probe failed: earlier"), unhealthy(f"Readiness probe {message}")]
    late = {"reason": "not ready within 5 s", "reason_code": ReasonCode.NOT_READY}
    status = running(not_ready_in_time=True, **late)
    process, other = with_results(status, [pod(probe)], events, NOW)
    assert (process.test_result, process.reason) == (result, f"not ready within 5 s: {result}")
    assert process.reason_code is ReasonCode.NOT_READY
    assert other == status.processes[1]
    process, _ = with_results(running(), [pod(probe)], events, NOW)
    assert (process.reason, process.reason_code) == (
        f"not ready yet: {result}",
        ReasonCode.NOT_READY_YET,
    )


def test_a_startup_probe_has_the_test_of_the_readiness_probe() -> None:
    body = pod(EXEC)
    body["spec"]["containers"][0]["startupProbe"] = EXEC
    process, _ = with_results(running(), [body], [unhealthy("Startup probe failed: no")], NOW)
    assert process.test_result == "the command failed: no"


V6_REFUSED = "dial tcp [fd00::5]:7000: connect: connection refused"
V6_HINT = (
    "; the Pod has only IPv6 addresses, and a server at 0.0.0.0 cannot be reached there: set the "
    "option bind_host to '::', such as with "
    'options: {kube: {bind_host: "::"}} in the configuration'
)


@pytest.mark.parametrize(
    ("refused", "listens_on", "addresses", "hint"),
    [
        (V6_REFUSED, "0.0.0.0", ["fd00::5"], V6_HINT),
        (V6_REFUSED, "::", ["fd00::5"], ""),
        (V6_REFUSED, None, ["fd00::5"], ""),
        (V6_REFUSED, "0.0.0.0", ["fd00::5", "10.0.0.1"], ""),
        (V6_REFUSED, "0.0.0.0", [], ""),
        ("dial tcp 10.0.0.1:7000: connect: connection refused", "0.0.0.0", ["10.0.0.1"], ""),
    ],
)
def test_refusal_in_a_cluster_with_ipv6_names_the_cure(
    refused: str, listens_on: str | None, addresses: list[str], hint: str
) -> None:
    server = pod(TCP)
    if listens_on is not None:
        variables = [{"name": "SYMPH_WEB_BIND_HOST", "value": listens_on}, {"name": "OTHER"}]
        server["spec"]["containers"][0]["env"] = variables
    server["status"] = {"podIPs": [{"ip": address} for address in addresses]}
    event = unhealthy(f"Readiness probe failed: {refused}")
    process, _ = with_results(running(), [server], [event], NOW)
    address = refused.split()[2].removesuffix(":")
    assert process.test_result == f"connection refused at {address}{hint}"


@pytest.mark.parametrize(
    ("addresses", "is_noted"),
    [
        (["fd00::1"], True),
        (["10.0.0.1"], False),
        (["10.0.0.1", "fd00::1"], False),
        (["None"], False),
    ],
)
def test_services_with_ipv6_addresses_alone_are_noted(addresses: list[str], is_noted: bool) -> None:
    service = {"metadata": {"name": "web"}, "spec": {"clusterIPs": addresses}}
    expected = (
        "Services of this cluster, such as 'web', have only IPv6 addresses, and a server at "
        "0.0.0.0 cannot be reached there: set the option bind_host to '::', such as with "
        'options: {kube: {bind_host: "::"}} in the configuration'
    )
    assert service_note([service]) == (expected if is_noted else "")
    assert service_note([]) == ""


@pytest.mark.parametrize(
    "event",
    [
        unhealthy("Liveness probe failed: x"),
        unhealthy("Readiness probe failed: x", container="other"),
        unhealthy("Readiness probe failed: x", uid="v"),
        {**unhealthy("Readiness probe failed: x"), "reason": "Failed"},
    ],
)
def test_other_events_are_ignored(event: dict[str, Any]) -> None:
    assert with_results(running(), [pod(EXEC)], [event], NOW) == running()


@pytest.mark.parametrize(
    "fields",
    [
        {"ready": True},
        {"started": NOW - 1},
        {"state": State.PENDING},
        {"reason": "being stopped", "reason_code": ReasonCode.STOPPING},
        {
            "reason": "exited with 0; its Pod has not finished yet",
            "reason_code": ReasonCode.FINISHING,
        },
    ],
)
def test_events_are_read_only_if_a_process_takes_longer_than_usual(fields: dict[str, Any]) -> None:
    assert awaits_results(running(), NOW)
    assert not awaits_results(running(**fields), NOW)


def test_event_of_a_late_process_contains_the_last_result(monkeypatch):
    late = {"reason": "not ready within 5 s", "reason_code": ReasonCode.NOT_READY}
    late |= {"state": State.RUNNING, "not_ready_in_time": True}
    processes = [ProcessStatus(name=name, **late) for name in ("a", "b")]
    status = ExperimentStatus(name="e", backend="kube", processes=tuple(processes))
    calls = []

    def explain_now(_experiment, status, _observer):
        calls.append(status)
        reasons = [replace(item, reason=f"{item.reason}: refused") for item in status]
        return replace(status, processes=tuple(reasons))

    monkeypatch.setattr(experiment_events.experiments, "explain_now", explain_now)
    events = experiment_events.EventStream.__new__(experiment_events.EventStream)
    events._experiment = None
    events.stream = SimpleNamespace(state=None)
    early = replace(processes[1], not_ready_in_time=False)
    events._previous = replace(status, processes=(processes[0], early))
    assert [item.reason for item in events._with_test_results(status)] == [
        "not ready within 5 s",
        "not ready within 5 s: refused",
    ]
    events._previous = status
    assert events._with_test_results(status) is status
    assert len(calls) == 1
