"""The topology of an experiment, as described and as launched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symphony.model import Experiment
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.plan.topology import (
    Link,
    Node,
    Service,
    Topology,
    folded,
    of_status,
    tallied,
    topology,
)
from symphony.status import ExperimentStatus, ProcessStatus
from symphony.supervised.read import read_details as joined
from symphony.supervised.render import HostManifest, render
from tests.unit import strategies
from tests.unit.topologies import example_experiment


def experiments() -> st.SearchStrategy[Experiment]:
    return strategies.experiments().map(Experiment.load_dict)


# --- the topology ---


def test_services_have_owners_ports_and_clients() -> None:
    found = topology(example_experiment())
    services = {service.name: service for service in found.services}
    assert services["db"] == Service(
        name="db", owners=("db",), port=5432, bound=True, encrypted=True
    )
    assert services["tensorboard"] == Service(
        name="tensorboard", owners=("learner",), port=6006, exposed=True
    )
    assert services["ghost"] == Service(name="ghost")
    assert found.clients("replay") == ("learner", "agents")
    assert [service.label for service in found.services if service.owners == ("replay",)] == [
        "replay",
        "replay-stats",
    ]


def test_a_connection_of_a_group_is_not_repeated_for_its_members() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds(["a", "b"])
    group = exp.new_process_group("clients").connects("a")
    group.new_process("one").connects(["a", "b"])
    links = {(link.source, link.target) for link in topology(exp).links}
    assert links == {("clients", "a"), ("one", "b")}


def test_start_conditions_are_links_and_unknown_processes_are_left_out() -> None:
    exp = Experiment("rl")
    exp.new_process("a").starts_after("b", "succeeded").starts_after("unknown")
    exp.new_process("b")
    assert topology(exp).links == (
        Link(kind="starts-after", source="a", target="b", condition="succeeded"),
    )


def test_a_service_can_have_two_owners() -> None:
    exp = Experiment("rl")
    exp.new_process("a").binds("x")
    exp.new_process("b").binds({"x": 7}).exposes("x")
    assert topology(exp).services == (
        Service(name="x", owners=("a", "b"), port=7, bound=True, exposed=True),
    )


def test_topology_of_a_status_has_processes_and_groups() -> None:
    status = ExperimentStatus(
        name="rl",
        backend="local",
        processes=(
            ProcessStatus(name="a"),
            ProcessStatus(name="b", group="g"),
            ProcessStatus(name="c", group="g"),
        ),
    )
    found = of_status(status)
    assert (found.members, found.groups) == (("a", "g"), ("g",))
    assert found.inside("g") == (
        Node(processes=("b",), group="g"),
        Node(processes=("c",), group="g"),
    )
    assert (found.services, found.links) == ((), ())


def launched_groups(
    *,
    connects: dict[str, list[str]] | None = None,
    starts_after: dict[str, dict[str, str]] | None = None,
) -> Topology:
    processes = [
        ProcessStatus(name=name, group=group)
        for name, group in (("a", None), ("b", "g"), ("c", "g"))
    ]
    status = ExperimentStatus(
        name="rl", backend="local", processes=(*processes, ProcessStatus(name="d", group="h"))
    )
    services = [
        Service(name="x", owners=("a",), port=7),
        Service(name="y", owners=("g",), port=8, exposed=True),
    ]
    return of_status(
        status, services=services, connects=connects or {}, starts_after=starts_after or {}
    )


@pytest.mark.parametrize(
    ("connects", "expected"),
    [
        ({"a": ["x"], "b": ["x", "y"], "c": ["y"]}, [("a", "x"), ("g", "y"), ("b", "x")]),
        ({"b": ["x"], "d": ["x"]}, [("b", "x"), ("h", "x")]),
        ({"gone": ["x"]}, []),
    ],
)
def test_a_connection_of_all_members_is_a_link_of_the_group(
    connects: dict[str, list[str]], expected: list[tuple[str, str]]
) -> None:
    assert [
        (link.source, link.target) for link in launched_groups(connects=connects).links
    ] == expected


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({"b": "ready", "c": "ready"}, [("g", "ready")]),
        ({"b": "ready", "c": "started"}, [("b", "ready"), ("c", "started")]),
        ({"b": "ready"}, [("b", "ready")]),
        ({"a": "ready", "d": "succeeded"}, [("a", "ready"), ("h", "succeeded")]),
    ],
)
def test_the_same_condition_on_all_members_is_a_link_to_the_group(
    waits: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    found = launched_groups(starts_after={"a": waits})
    assert [(link.target, link.condition) for link in found.links] == expected


def test_an_exposed_service_is_bound_if_a_process_connects_to_it() -> None:
    assert [service.bound for service in launched_groups().services] == [True, False]
    assert [service.bound for service in launched_groups(connects={"a": ["y"]}).services] == [
        True,
        True,
    ]
    assert launched_groups(connects={"a": ["z"]}).services[2] == Service(name="z")


def comparable_description(exp: Experiment, ports: Mapping[str, int | None]) -> Topology:
    """Return the topology of a description without the parts that a launch does not record."""
    found = topology(exp)
    used = {link.target for link in found.links if link.kind == "connects"}
    services = (
        replace(one, port=ports[one.name], bound=not one.exposed or one.name in used)
        for one in found.services
    )
    return replace(found, services=tuple(services))


def encrypted() -> Experiment:
    exp = Experiment("rl")
    exp.new_process("a", command="a").binds("x", encrypted=True).exposes("y")
    exp.new_process("b", command="b").connects("x")
    return exp


@given(experiments())
@example(encrypted())
def test_the_topology_of_a_local_launch_is_that_of_its_description(exp: Experiment) -> None:
    manifest = json.loads(json.dumps(rendered(exp).to_dict()))
    status = ExperimentStatus(
        name=exp.name,
        backend="local",
        processes=tuple(
            ProcessStatus(name=item["name"], group=item["group"]) for item in manifest["processes"]
        ),
    )
    found = joined.topology(manifest, status)
    expected = comparable_description(
        exp, {service.name: service.port for service in found.services}
    )
    single_members = {
        group: found.inside(group)[0].key for group in found.groups if len(found.inside(group)) == 1
    }
    assert comparable(found, single_members) == comparable(expected, single_members)


def comparable(found: Topology, single_members: Mapping[str, str]) -> object:
    """Return a topology in a form that can be compared.

    A group of one is equal to its member, and a wait for a group to one for each member.
    """
    owners = {
        service.name: replace(
            service, owners=tuple(single_members.get(owner, owner) for owner in service.owners)
        )
        for service in found.services
    }
    inside = {group: [node.key for node in found.inside(group)] for group in found.groups}
    ends = {
        (link.kind, source, target, link.condition)
        for link in found.links
        for source in inside.get(link.source, [link.source])
        for target in (
            inside.get(link.target, [link.target]) if link.kind == "starts-after" else [link.target]
        )
    }
    return replace(found, services=(), links=()), owners, ends


def rendered(exp: Experiment) -> HostManifest:
    plan = resolve(
        exp, AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")
    )
    return render(
        plan,
        run_id="0",
        launched=0.0,
        directory=Path("/state"),
        working_directory=Path("/here"),
        shell="/bin/sh",
    )


@given(experiments())
def test_every_process_is_in_one_node(exp: Experiment) -> None:
    every = [process.name for process in exp.list_all_processes()]
    for found in (topology(exp), folded(topology(exp)), folded(topology(exp), least=2)):
        assert sorted(name for node in found.nodes for name in node.processes) == sorted(every)
        ends = {node.key for node in found.nodes} | set(found.groups)
        services = {service.name for service in found.services}
        assert {link.source for link in found.links} <= ends
        assert all(
            link.target in (services if link.kind == "connects" else ends) for link in found.links
        )
        assert {owner for service in found.services for owner in service.owners} <= ends
        assert set(found.members) <= ends


# --- folding ---


def labels(exp: Experiment) -> list[str]:
    return [node.label() for node in folded(topology(exp)).nodes]


def test_equal_processes_are_folded() -> None:
    assert labels(example_experiment(100))[3] == "agent-0 … agent-99 (100)"
    assert Node(processes=("a-1", "a-2")).label("...") == "a-1 ... a-2 (2)"


def test_two_processes_are_not_folded() -> None:
    exp = Experiment("rl")
    for name in ("a-1", "a-2"):
        exp.new_process(name)
    assert labels(exp) == ["a-1", "a-2"]


def test_a_process_with_other_connections_is_not_folded() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds(["a", "b", "own"])
    for number in range(9):
        exp.new_process(f"c-{number}").connects("a")
    exp.get_process("c-3").connects("b")
    exp.get_process("c-4").starts_after("server")
    exp.get_process("server").starts_after("c-5", "started")
    exp.get_process("c-6").binds("mine")
    assert labels(exp) == ["server", "c-0 … c-8 (5)", "c-3", "c-4", "c-5", "c-6"]


def test_only_names_that_differ_in_a_number_are_folded() -> None:
    exp = Experiment("rl")
    for name in ("anna", "bob", "carl", "d1", "e1", "f1"):
        exp.new_process(name)
    assert len(labels(exp)) == 6


def test_a_service_with_the_name_of_a_folded_process_keeps_its_links() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds("c-2")
    for number in range(3):
        exp.new_process(f"c-{number}").connects("c-2")
    found = folded(topology(exp))
    assert found.links == (Link(kind="connects", source="c-0", target="c-2"),)


def test_states_are_counted() -> None:
    assert tallied({"running": 2, "failed": 1}, many=True) == "2 running, 1 failed"
    assert tallied({"running": 1}, many=False) == "running"
