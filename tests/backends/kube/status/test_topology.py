"""The topology of a running experiment, from its Pods, its roster and its Services."""

from __future__ import annotations

import base64
import zlib

import pytest

from symphony import Experiment
from symphony.plan.topology import Link, Service, Topology
from symphony.status import ExperimentStatus, ProcessStatus
from symphony_kube.api.labels import Scope
from symphony_kube.render.experiment import render
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.roster import decode_roster, encode_roster
from symphony_kube.status.topology import build_topology
from tests.backends.kube.specimens import FILES, IMAGE, planned


def topology_of(
    exp: Experiment, *, environment: bool = True, expose: str = "LoadBalancer"
) -> Topology:
    """Return the topology of an experiment from its objects, in the order of the API."""
    scope = Scope(experiment=exp.name, namespace="team-a", shared=True)
    plan = planned(exp, scope)
    files = {**FILES, **dict.fromkeys(plan.key_variables, b"key")}
    manifest = render(plan, scope, RenderOptions(image=IMAGE, expose=expose), files)  # type: ignore[arg-type]
    roster = decode_roster(encode_roster(manifest.roster))
    processes = tuple(
        ProcessStatus(name=name, group=unit.name if unit.group else None)
        for unit in roster
        for name in unit.processes
    )
    container = manifest.units[0]["spec"]["containers"][0]
    env = {item["name"]: item.get("value", "") for item in container["env"]} if environment else {}
    services = sorted(
        (item for item in manifest if item["kind"] == "Service"),
        key=lambda one: one["metadata"]["name"],
    )
    status = ExperimentStatus(name=exp.name, backend="kube", processes=processes)
    return build_topology(status, roster, services, env)


def experiment_with_services() -> Experiment:
    exp = Experiment("rl")
    exp.new_process("z").binds({"z-db": 7400}, encrypted=True).exposes({"web": 7401})
    team = (
        exp.new_process_group("team")
        .binds({"of-team": 7402})
        .connects("z-db")
        .starts_after("z", "started")
    )
    team.new_process("one")
    team.new_process("two").binds({"of-two": 7403}).connects("of-team")
    return exp


@pytest.mark.parametrize("data", [b" " * (1 << 24), b"[" * 100_000])
def test_annotation_that_is_not_a_roster_is_refused(data):
    text = base64.b64encode(zlib.compress(data)).decode()
    with pytest.raises(ValueError, match="not valid: "):
        decode_roster(text)


def test_services_are_in_declaration_order() -> None:
    assert topology_of(experiment_with_services()).services == (
        Service(name="z-db", owners=("z",), port=7400, bound=True, encrypted=True),
        Service(name="web", owners=("z",), port=7401, exposed=True),
        Service(name="of-team", owners=("team",), port=7402, bound=True),
        Service(name="of-two", owners=("two",), port=7403, bound=True),
    )


def test_links_come_from_the_roster() -> None:
    assert topology_of(experiment_with_services()).links == (
        Link(kind="connects", source="team", target="z-db"),
        Link(kind="starts-after", source="team", target="z", condition="started"),
        Link(kind="connects", source="two", target="of-team"),
    )


def test_services_without_a_pod_are_in_order_of_names() -> None:
    services = topology_of(experiment_with_services(), environment=False).services
    assert [service.name for service in services] == ["of-team", "of-two", "web", "z-db"]


def test_service_without_external_type_is_not_exposed() -> None:
    web = topology_of(experiment_with_services(), expose="none").services[1]
    assert (web.name, web.exposed, web.bound) == ("web", False, True)
