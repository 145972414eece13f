"""``symphony services``: the services of a running experiment."""

from __future__ import annotations

import pytest

from tests.cli.conftest import FOREVER, Program


def test_services_have_ports_addresses_and_the_processes_that_serve_and_use_them(
    program: Program,
) -> None:
    program.launch(
        "rl",
        {
            "learner": {"cmd": FOREVER, "binds": "replay", "exposes": "board"},
            "agent-0": {"cmd": FOREVER, "connects": "replay"},
            "agent-1": {"cmd": FOREVER, "connects": "replay"},
        },
    )
    services = {service["name"]: service for service in program.json("services", "rl")}
    replay, board = services["replay"], services["board"]
    assert (replay["served_by"], replay["used_by"]) == (["learner"], ["agent-0", "agent-1"])
    assert (replay["exposed"], replay["address"]) == (False, None)
    assert (board["exposed"], board["address"].rpartition(":")[2]) == (True, str(board["port"]))
    rows = [line.split() for line in program.ok("services", "rl").splitlines()]
    assert rows[0] == ["SERVICE", "PORT", "SERVED", "BY", "USED", "BY", "ADDRESS"]
    assert [row[0] for row in rows[1:]] == list(services)


def test_an_experiment_without_services_has_an_empty_table(program: Program) -> None:
    program.launch("rl", {"learner": FOREVER})
    assert program.json("services", "rl") == []


@pytest.mark.parametrize("count", [1, 2])
def test_the_replicas_of_a_service_have_addresses_of_their_own(
    program: Program, count: int
) -> None:
    program.launch(
        "rl", {"server": {"cmd": FOREVER, "binds": "rpc", "exposes": "board", "replicas": count}}
    )
    services = {service["name"]: service for service in program.json("services", "rl")}
    replicas = services["board"]["replicas"]
    assert list(replicas) == [f"board-{number}" for number in range(count)]
    assert services["rpc"]["replicas"] == {}
    assert ", ".join(replicas.values()) in program.ok("services", "rl")
    for command, name in (("visit", "board"), ("forward", "board"), ("forward", "rpc")):
        done = program(command, "rl", name)
        names = f"name {name}-0" if count == 1 else f"name one of {name}-0, {name}-1"
        assert (done.returncode, done.stderr) == (
            2,
            "symphony: error: each replica of service "
            f"'{name}' of 'rl' has its own address; {names}\n",
        )
    message = program("visit", "rl", "rpc").stderr
    assert message.endswith("for the address of a replica, use: symphony forward rl rpc-0\n")
    program.ok("forward", "rl", "rpc-0")
