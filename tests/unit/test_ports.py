"""Ports: fixed ones first, the others from the pool in declaration order, none twice, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment, SpecError
from symphony.model.validators import DEFAULT_PORTS
from symphony.plan.addresses import AddressScheme, ServiceRequest, choose_ports
from symphony.plan.resolve import resolve

POOL = (7000, 7019)


def free(_: int) -> None:
    return None


def request(name: str, port: int | None = None) -> ServiceRequest:
    return ServiceRequest(name=name, owner=f"owner-of-{name}", port=port)


@st.composite
def requests(draw: st.DrawFn) -> list[ServiceRequest]:
    """Up to ten services of which some have a port of their own, in the pool or elsewhere."""
    count = draw(st.integers(0, 10))
    fixed = draw(
        st.lists(st.integers(POOL[0] - 3, POOL[1] + 3), min_size=count, max_size=count, unique=True)
    )
    return [
        request(f"s{index}", draw(st.sampled_from([None, port])))
        for index, port in enumerate(fixed)
    ]


refused_ports = st.sets(st.integers(*POOL), max_size=5)


def refusing(ports: set[int], asked: list[int] | None = None) -> Callable[[int], str | None]:
    def refuse(port: int) -> str | None:
        if asked is not None:
            asked.append(port)
        return "is in use" if port in ports else None

    return refuse


@given(requests(), refused_ports)
def test_what_is_chosen(wanted: list[ServiceRequest], refused: set[int]) -> None:
    refused -= {item.port for item in wanted if item.port}
    asked: list[int] = []
    chosen = choose_ports(wanted, POOL, refusing(refused, asked))
    assert chosen.keys() == {item.name for item in wanted}
    assert len(set(chosen.values())) == len(wanted), "no port twice"
    assert all(chosen[item.name] == item.port for item in wanted if item.port), (
        "fixed ones are kept"
    )
    drawn = [chosen[item.name] for item in wanted if item.port is None]
    assert drawn == sorted(drawn), "in declaration order"
    taken = {item.port for item in wanted}
    candidates = [port for port in range(POOL[0], POOL[1] + 1) if port not in taken | refused]
    assert drawn == candidates[: len(drawn)], (
        "the first that can be had, passing over what is refused"
    )
    assert len(set(asked)) == len(asked), "nobody is asked twice, since to be asked may be to hold"
    assert chosen == choose_ports(wanted, POOL, refusing(refused)), (
        "the same spec gives the same answer"
    )


@given(requests())
def test_a_fixed_port_moves_nobody_else_s_fixed_port(wanted: list[ServiceRequest]) -> None:
    fixed = {item.name: item.port for item in wanted if item.port}
    chosen = choose_ports(reversed(wanted), POOL, free)
    assert {name: chosen[name] for name in fixed} == fixed


@given(st.integers(1, 65535), st.integers(0, 5), st.integers(0, 8))
def test_a_pool_has_as_many_ports_as_it_says(first: int, more: int, count: int) -> None:
    last = min(first + more, 65535)
    wanted = [request(f"s{index}") for index in range(count)]
    if count <= last - first + 1:
        assert sorted(choose_ports(wanted, (first, last), free).values()) == list(
            range(first, first + count)
        )
    else:
        with pytest.raises(
            SpecError, match=f"no port is left in {first}-{last} for service 's{last - first + 1}'"
        ):
            choose_ports(wanted, (first, last), free)


def test_one_port_for_two_services_names_both() -> None:
    with pytest.raises(
        SpecError,
        match="port 7001 is given to two services: 'a' of 'owner-of-a' and 'b' of 'owner-of-b'; give one of",
    ):
        choose_ports([request("a", 7001), request("b", 7001)], POOL, free)


def test_a_fixed_port_that_is_refused_says_why() -> None:
    with pytest.raises(
        SpecError, match=r"port 7001 of service 'a' \('owner-of-a'\) is in use; free it, or leave"
    ):
        choose_ports([request("a", 7001)], POOL, refusing({7001}))


def test_a_pool_that_ran_dry_says_who_wanted_and_why_each_was_refused() -> None:
    wanted = [request("a", 7000), request("b"), request("c")]
    with pytest.raises(SpecError) as refusal:
        choose_ports(wanted, (7000, 7002), refusing({7002}))
    assert str(refusal.value) == (
        "no port is left in 7000-7002 for service 'c' of 'owner-of-c' (7000 is given to 'a', 7002 is in use); "
        "give the experiment a wider port_range"
    )


# --- through an experiment ---


def endpoints(experiment: Experiment, refuse: Callable[[int], str | None] = free) -> dict[str, int]:
    scheme = AddressScheme(backend="paper", host=lambda _: "h", bind_host="b", refuse=refuse)
    return {name: endpoint.port for name, endpoint in resolve(experiment, scheme).addresses.items()}


def serving(**options: Any) -> Experiment:
    experiment = Experiment("e", **options)
    experiment.new_process("p", command="c").binds(["a", "b"]).exposes({"c": 7001})
    return experiment


def test_the_default_pool() -> None:
    assert endpoints(serving()) == {"a": DEFAULT_PORTS[0], "b": 7002, "c": 7001}


def test_a_port_range_of_the_experiment() -> None:
    assert endpoints(serving(port_range=(9000, 9001))) == {"a": 9000, "b": 9001, "c": 7001}
    with pytest.raises(SpecError, match="no port is left in 9000-9000 for service 'b' of 'p'"):
        endpoints(serving(port_range=(9000, 9000)))


def test_a_scheme_may_refuse() -> None:
    assert endpoints(serving(), refusing({7000, 7003})) == {"a": 7002, "b": 7004, "c": 7001}
    with pytest.raises(SpecError, match=r"port 7001 of service 'c' \('p'\) is in use"):
        endpoints(serving(), refusing({7001}))
