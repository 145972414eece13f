"""Choosing ports: fixed ones first, the others from the pool in declaration order, none twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, SpecError
from symphony.model.settings.validators import DEFAULT_PORT_RANGE
from symphony.plan.resolution.addresses import AddressScheme, ServiceRequest, choose_ports
from symphony.plan.resolve import resolve

POOL = (7000, 7019)


def accept(_: int) -> None:
    return None


def request(name: str, port: int | None = None) -> ServiceRequest:
    return ServiceRequest(name=name, owner=f"owner-of-{name}", port=port)


@st.composite
def requests(draw: st.DrawFn) -> list[ServiceRequest]:
    """Up to ten services. Some have a fixed port, in the pool or next to it."""
    count = draw(st.integers(0, 10))
    ports = st.integers(POOL[0] - 3, POOL[1] + 3)
    fixed = draw(st.lists(ports, min_size=count, max_size=count, unique=True))
    return [
        request(f"s{index}", draw(st.sampled_from([None, port])))
        for index, port in enumerate(fixed)
    ]


def refusing(ports: set[int], asked: list[int] | None = None) -> Callable[[int], str | None]:
    def refuse(port: int) -> str | None:
        if asked is not None:
            asked.append(port)
        return "is in use" if port in ports else None

    return refuse


@given(requests(), st.sets(st.integers(*POOL), max_size=5))
def test_chosen_ports(wanted: list[ServiceRequest], refused: set[int]) -> None:
    fixed = {item.port for item in wanted if item.port}
    refused -= fixed
    asked: list[int] = []
    chosen = choose_ports(wanted, POOL, refusing(refused, asked))
    assert chosen.keys() == {item.name for item in wanted}
    assert len(set(chosen.values())) == len(wanted), "no port is chosen twice"
    assert all(chosen[item.name] == item.port for item in wanted if item.port)
    drawn = [chosen[item.name] for item in wanted if item.port is None]
    candidates = [port for port in range(POOL[0], POOL[1] + 1) if port not in fixed | refused]
    assert drawn == candidates[: len(drawn)], "the first free ports, in declaration order"
    assert len(set(asked)) == len(asked), "each port is reserved at most once"
    assert chosen == choose_ports(wanted, POOL, refusing(refused)), "the choice is repeatable"
    reversed_choice = choose_ports(reversed(wanted), POOL, refusing(refused))
    assert all(reversed_choice[item.name] == item.port for item in wanted if item.port)


@given(st.integers(1, 65535), st.integers(0, 5), st.integers(0, 8))
def test_size_of_a_pool(first: int, more: int, count: int) -> None:
    last = min(first + more, 65535)
    wanted = [request(f"s{index}") for index in range(count)]
    if count <= last - first + 1:
        chosen = choose_ports(wanted, (first, last), accept)
        assert sorted(chosen.values()) == list(range(first, first + count))
    else:
        message = f"no port is available in {first}-{last} for service 's{last - first + 1}'"
        with pytest.raises(SpecError, match=message):
            choose_ports(wanted, (first, last), accept)


@pytest.mark.parametrize(
    ("wanted", "pool", "refused", "message"),
    [
        (
            [request("a", 7001)],
            POOL,
            {7001},
            "port 7001 of service 'a' ('owner-of-a') is in use; ",
        ),
        (
            [request("a", 7000), request("b"), request("c")],
            (7000, 7002),
            {7002},
            "no port is available in 7000-7002 for service 'c' of 'owner-of-c' "
            "(7000 is assigned to 'a', 7002 is in use); ",
        ),
    ],
)
def test_errors_name_the_services_and_the_reason(
    wanted: list[ServiceRequest], pool: tuple[int, int], refused: set[int], message: str
) -> None:
    with pytest.raises(SpecError) as refusal:
        choose_ports(wanted, pool, refusing(refused))
    assert str(refusal.value).startswith(message)


def test_avoided_ports_are_chosen_last() -> None:
    wanted = [request("a"), request("b"), request("c", 7002)]
    asked: list[int] = []
    chosen = choose_ports(
        wanted, (7000, 7003), refusing(set(), asked), None, {7000, 7002}.__contains__
    )
    assert chosen == {"c": 7002, "a": 7001, "b": 7003}
    assert asked == [7002, 7001, 7003]
    chosen = choose_ports(wanted, (7000, 7002), accept, None, {7000, 7002}.__contains__)
    assert chosen == {"c": 7002, "a": 7001, "b": 7000}


# --- the ports of an experiment ---


def ports(refuse: Callable[[int], str | None] = accept, **options: Any) -> dict[str, int]:
    experiment = Experiment("e", **options)
    experiment.new_process("p", command="c").binds(["a", "b"]).exposes({"c": 7001})
    scheme = AddressScheme(backend="paper", host=lambda _: "h", bind_host="b", refuse=refuse)
    return {name: endpoint.port for name, endpoint in resolve(experiment, scheme).addresses.items()}


def test_default_pool_and_port_range() -> None:
    assert ports() == {"a": DEFAULT_PORT_RANGE[0], "b": 7002, "c": 7001}
    assert ports(port_range=(9000, 9001)) == {"a": 9000, "b": 9001, "c": 7001}
    with pytest.raises(SpecError, match="no port is available in 9000-9000 for service 'b' of 'p'"):
        ports(port_range=(9000, 9000))


def test_scheme_refuses_ports() -> None:
    assert ports(refusing({7000, 7003})) == {"a": 7002, "b": 7004, "c": 7001}
    with pytest.raises(SpecError, match=r"port 7001 of service 'c' \('p'\) is in use"):
        ports(refusing({7001}))
