"""Services that several processes bind, each with its own address."""

from __future__ import annotations

from typing import Any

import pytest

from symphony import Experiment, NotFound, SpecError, address
from symphony.plan.changes import Changes, compare, snapshot_of_plan
from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.plan.topology import folded, topology

SCHEME = AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")
SEPARATE_MACHINES = AddressScheme(
    backend="kube", host=lambda name: name, bind_host="0.0.0.0", shares_ports=False
)


def described(**processes: Any) -> Experiment:
    complete = {
        name: item if "processes" in item else {"command": "c", **item}
        for name, item in processes.items()
    }
    return Experiment.load_dict({"name": "e", "processes": complete})


def pool(replicas: int = 3, **settings: Any) -> Experiment:
    return described(
        server={"replicas": replicas, "binds": "inference", **settings},
        client={"connects": "inference"},
        other={},
    )


def environment(plan: Plan, name: str) -> dict[str, str]:
    return plan.environment(next(process for process in plan if process.name == name))


def test_each_replica_has_an_address_that_clients_know_in_order() -> None:
    plan = resolve(pool(), SCHEME)
    client = environment(plan, "client")
    assert client["SYMPH_INFERENCE_ADDRS"] == "127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002"
    assert client["SYMPH_INFERENCE_1_ADDR"] == "127.0.0.1:7001"
    assert client["SYMPH_INFERENCE_2_HOST"] == "127.0.0.1"
    assert client["SYMPH_INFERENCE_2_PORT"] == "7002"
    found = address("inference", client)
    assert str(found) == client["SYMPH_INFERENCE_ADDR"] == "127.0.0.1:7000"
    assert [replica.port for replica in found.all] == [7000, 7001, 7002]
    assert found.all[1] == address("inference-1", client)


def test_a_replica_binds_its_own_address() -> None:
    plan = resolve(pool(), SCHEME)
    ports = [address("inference", environment(plan, f"server-{n}")).port for n in range(3)]
    assert ports == [7000, 7001, 7002]
    own = environment(plan, "server-2")
    assert len(address("inference", own).all) == 3


def test_an_address_of_a_service_that_is_not_replicated_is_the_only_one() -> None:
    plan = resolve(described(server={"binds": "db"}), SCHEME)
    found = address("db", environment(plan, "server"))
    assert found.all == (found,)


def test_members_of_replicated_groups_bind_one_service() -> None:
    experiment = described(
        crew={"replicas": 2, "binds": "a", "processes": {"m": {"command": "c", "binds": "b"}}},
        team={"processes": {"n": {"command": "c", "replicas": 2, "binds": "c"}}},
    )
    plan = resolve(experiment, SCHEME)
    assert list(plan.addresses) == ["a-0", "b-0", "a-1", "b-1", "c-0", "c-1"]
    own = environment(plan, "m-1")
    assert [address(name, own).port for name in ("a", "b", "c")] == [7002, 7003, 7004]


def test_a_service_with_the_number_in_its_name_is_not_replicated() -> None:
    experiment = described(server={"replicas": 2, "binds": ["db-${index}", "all"]})
    assert list(resolve(experiment, SCHEME).addresses) == ["db-0", "all-0", "db-1", "all-1"]
    assert experiment.get_process("server-0").settings.replicated == ["all"]


def test_processes_can_connect_to_a_service_without_replicas() -> None:
    for experiment in (pool(0), Experiment.load_dict(pool(0).dump_dict())):
        client = environment(resolve(experiment, SCHEME), "client")
        assert client["SYMPH_INFERENCE_ADDRS"] == ""
        with pytest.raises(NotFound, match="service 'inference' has no replicas"):
            address("inference", client)
        assert "bound=True" in str(topology(experiment).services)


def test_replicas_in_a_program_are_those_in_a_file() -> None:
    for number in (0, 2):
        program = Experiment("e")
        servers = program.new_replicas("server", number, binds="inference", command="c")
        assert [server.name for server in servers] == ["server-0", "server-1"][:number]
        program.new_process("client", command="c").connects("inference")
        program.new_process("other", command="c")
        assert resolve(program, SCHEME) == resolve(pool(number), SCHEME)
        assert program.replicas == pool(number).replicas
    again = Experiment.load_dict(pool().dump_dict())
    assert resolve(again, SCHEME) == resolve(pool(), SCHEME)


def test_readiness_tests_use_the_port_of_the_replica() -> None:
    plan = resolve(pool(ready={"tcp": "inference"}), SCHEME)
    ports = [process.endpoint("inference").port for process in plan.processes[:3]]
    assert ports == [7000, 7001, 7002]


def test_replicas_on_separate_machines_can_have_the_same_port() -> None:
    experiment = pool(2, binds={"inference": 8000})
    plan = resolve(experiment, SEPARATE_MACHINES)
    assert plan.shared_env["SYMPH_INFERENCE_ADDRS"] == "inference-0:8000,inference-1:8000"
    with pytest.raises(SpecError) as caught:
        resolve(experiment, SCHEME)
    assert str(caught.value) == (
        "'server-0' and 'server-1' both bind service 'inference' on port 8000 on one machine; "
        "remove the port, so that each gets its own, or give each a port of its own, as in "
        "inference: 80${index}"
    )


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        (
            {"a": {"binds": "s"}, "b": {"binds": "s", "replicated": "s"}},
            "process 'b': serves service 's', which 'a' serves too",
        ),
        (
            {"a": {"replicated": "t", "binds": "s"}},
            "process 'a': declares service 't' as replicated, which it neither binds nor exposes",
        ),
        (
            {"a": {"replicas": 2, "binds": "s"}, "b": {"binds": "s-0"}},
            "process 'b': serves 's-0', which is the name of a replica of service 's'",
        ),
        (
            {
                "a": {"binds": "s", "replicated": "s", "encrypted": "s"},
                "b": {"binds": "s", "replicated": "s"},
            },
            "process 'b': does not encrypt service 's', which other replicas encrypt",
        ),
        (
            {"g": {"processes": {"m": {"replicas": 2, "command": "c", "binds": {"s": 80}}}}},
            r"'m-0' and 'm-1' both bind service 's' on port 80 in one Pod \(g\)",
        ),
    ],
)
def test_errors_in_replicated_services(processes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}"):
        resolve(described(**processes), SEPARATE_MACHINES)


def test_all_replicas_of_an_encrypted_service_are_encrypted() -> None:
    plan = resolve(pool(2, encrypted="inference"), SCHEME)
    assert plan.shared_env["SYMPH_INFERENCE_1_ENCRYPTED"] == "curve"


def changes(old: Experiment, new: Experiment) -> Changes:
    return compare(*(snapshot_of_plan(resolve(item, SCHEME)) for item in (old, new)))


def test_another_number_of_replicas_restarts_only_the_processes_that_connect() -> None:
    reason = "stop client: the number of replicas of service 'inference' changed from"
    assert changes(pool(2), pool(4)).lines() == [
        f"{reason} 2 to 4",
        "start server-2, server-3 (new)",
        "start client",
    ]
    assert changes(pool(3), pool(0)).lines() == [
        f"{reason} 3 to 0",
        "stop server-0, server-1, server-2: not part of the experiment any more",
        "remove server-0, server-1, server-2",
        "start client",
    ]
    assert changes(pool(0), pool(1)).lines() == [
        f"{reason} 0 to 1",
        "start server-0 (new)",
        "start client",
    ]


def test_the_new_address_of_a_replica_restarts_it_and_the_clients() -> None:
    moved = pool(2)
    moved.get_process("server-1").binds({"inference": 7500})
    assert changes(pool(2), moved).names("restarted") == ["server-1", "client"]


def test_replicas_that_bind_a_service_are_drawn_as_one_process() -> None:
    found = folded(topology(pool(4)))
    assert [node.label() for node in found.nodes] == [
        "server-0 … server-3 (4)",
        "client",
        "other",
    ]
    assert [service.owners for service in found.services] == [("server-0",)]


def test_a_subset_with_a_client_contains_all_replicas() -> None:
    assert len(pool(3).subset(["client"]).list_all_processes()) == 4
