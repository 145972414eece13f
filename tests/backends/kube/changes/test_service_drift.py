"""Services that others have deleted or edited: what `diff` says, and how `up` repairs them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony import Experiment
from symphony.plan.changes import RESTARTED, STARTED, UNCHANGED, UPDATED, ProcessChange
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.changes.service_drift import find_drift, service_patch, with_drift
from symphony_kube.cluster import KubeCluster
from tests.backends.kube.conftest import unschedulable

SERVICES = ("web", "alone", "whole", "own")
Service = dict[str, Any]


@pytest.fixture
def kube_cluster(memory_cluster: Any) -> Any:
    return memory_cluster


def manifest(**options: Any) -> Any:
    experiment = Experiment("e")
    experiment.new_process("server", container_image="i", command="c").binds(["web", "alone"])
    team = experiment.new_process_group("team")
    team.new_process("first", container_image="i", command="c")
    team.new_process("second", container_image="i", command="c").binds("own")
    team.binds("whole")
    return KubeCluster(namespace="n", **options).manifest(experiment)


class Server:
    """An API server with the Services of an experiment, to which it has added fields."""

    def __init__(self, rendered: Any) -> None:
        self.services = {
            item["metadata"]["name"]: _as_stored(item)
            for item in rendered
            if item["kind"] == "Service"
        }

    def call(self, _: str, path: str, *, query: dict[str, str]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/n/services"
        assert "symphony/experiment=e" in query["labelSelector"]
        return {"items": list(self.services.values())}


def _as_stored(body: Service) -> Service:
    stored = copy.deepcopy(body)
    stored["spec"] |= {"clusterIP": "10.0.0.7", "sessionAffinity": "None"}
    for port in stored["spec"]["ports"]:
        port["protocol"] = "TCP"
    return stored


def drift(change: Callable[[dict[str, Service]], object]) -> dict[str, list[str]]:
    rendered = manifest()
    server = Server(rendered)
    change(server.services)
    return find_drift(KubeExperiment(server, rendered.scope), rendered, SERVICES)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda services: None, {}),
        (
            lambda services: services.pop("e-web"),
            {"server": ["its Service 'e-web' does not exist"]},
        ),
        (
            lambda services: services["e-own"]["metadata"].update(deletionTimestamp="now"),
            {"second": ["its Service 'e-own' does not exist"]},
        ),
        (
            lambda services: services.pop("e-whole"),
            {"first": ["its Service 'e-whole' does not exist"]},
        ),
        (
            lambda services: services["e-web"]["spec"]["selector"].update(more="x"),
            {"server": ["its Service 'e-web' was edited (selector)"]},
        ),
        (
            lambda services: services["e-web"]["spec"].update(type="NodePort", ports=[]),
            {"server": ["its Service 'e-web' was edited (type, ports)"]},
        ),
        (
            lambda services: services["e-web"]["spec"].update(publishNotReadyAddresses=False),
            {"server": ["its Service 'e-web' was edited (publishNotReadyAddresses)"]},
        ),
        # Fields that symphony does not set.
        (lambda services: services["e-web"]["spec"].update(sessionAffinity="ClientIP"), {}),
    ],
)
def test_what_others_have_changed(
    change: Callable[[dict[str, Service]], object], expected: dict[str, list[str]]
) -> None:
    assert drift(change) == expected


def test_services_of_the_new_description_alone_are_not_missed() -> None:
    rendered = manifest()
    server = Server(rendered)
    del server.services["e-web"]
    assert find_drift(KubeExperiment(server, rendered.scope), rendered, ["alone"]) == {}


def test_a_user_who_may_not_list_services_finds_nothing() -> None:
    class Refusing:
        def call(self, *_: object, **__: object) -> None:
            raise ApiError("services is forbidden", status=403)

    rendered = manifest()
    assert find_drift(KubeExperiment(Refusing(), rendered.scope), rendered, SERVICES) == {}


def test_ports_can_have_more_fields_by_the_options() -> None:
    service_yml = {"spec": {"ports": [{"name": "web", "nodePort": 30007}]}}
    rendered = manifest(service_yml=service_yml)
    (body,) = [item for item in rendered if item["metadata"]["name"] == "e-web"]
    stored = _as_stored(body)
    assert service_patch(body, stored) is None
    stored["spec"]["ports"][0]["port"] = 1
    patch = service_patch(body, stored)
    assert patch is not None
    assert patch["spec"] == {"ports": body["spec"]["ports"]}


def test_a_repair_removes_what_was_added_to_the_selector() -> None:
    (body,) = [item for item in manifest() if item["metadata"]["name"] == "e-web"]
    stored = _as_stored(body)
    stored["spec"]["selector"]["more"] = "x"
    patch = service_patch(body, stored)
    assert patch is not None
    assert patch["spec"] == {"selector": {**body["spec"]["selector"], "more": None}}


def test_only_processes_that_are_not_restarted_are_updated() -> None:
    actions = (UNCHANGED, STARTED, RESTARTED)
    changes = [ProcessChange(name=action, action=action) for action in actions]
    found = with_drift(changes, {action: ["it is gone"] for action in (*actions, "other")})
    assert [(change.action, change.reasons) for change in found] == [
        (UPDATED, ("it is gone",)),
        (STARTED, ("it is gone",)),
        (RESTARTED, ()),
    ]


def test_up_repairs_services_that_others_have_changed(shared, kube_cluster, name) -> None:
    exp = shared.new_experiment(name)
    unschedulable(exp, "server").binds(["web", "data"])
    unschedulable(exp, "other").binds("own")
    shared.launch(exp)
    assert shared.diff(exp).is_empty
    services = kube_cluster.path("services")

    def specs() -> dict[str, dict[str, Any]]:
        items = kube_cluster.raw.call("GET", services)["items"]
        fields = ("selector", "ports", "type")
        return {
            item["metadata"]["name"]: {key: item["spec"][key] for key in fields} for item in items
        }

    before = specs()
    kube_cluster.raw.call("DELETE", f"{services}/{name}-web")
    edit = {"spec": {"selector": {"another": "label"}}}
    kube_cluster.raw.call("PATCH", f"{services}/{name}-data", edit, MERGE_PATCH)
    expected = (
        f"its Service '{name}-web' does not exist",
        f"its Service '{name}-data' was edited (selector)",
    )
    for changes in (shared.diff(exp), shared.up(exp)):
        assert (changes.names(UPDATED), changes.names(UNCHANGED)) == (["server"], ["other"])
        assert changes.processes[0].reasons == expected
    assert specs() == before
    assert shared.diff(exp).is_empty
    shared.delete(name)
