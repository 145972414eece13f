"""Assignments of processes to node pools: shares, pools, groups and errors."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import Cluster, Experiment, NotFound, SpecError
from symphony.kube import (
    GKEDispatcher,
    KubeCluster,
    NodePool,
    NodePoolDispatcher,
    Process,
    ProcessGroup,
    Reserve,
)
from symphony_kube.node_pools.pools import MachineResources

SAMPLES = sorted((Path(__file__).parents[1] / "tfjson").glob("*.tf.json"))
LAB = Path(__file__).parents[1] / "tfjson" / "lab.tf.json"
POOLS = [pool for sample in SAMPLES for pool in GKEDispatcher(sample).get_node_pools()]
GPUS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
V100 = "nvidia-tesla-v100"


@pytest.fixture
def lab() -> GKEDispatcher:
    return GKEDispatcher(LAB)


@pytest.fixture
def exp() -> Experiment:
    return Experiment("rl")


def new(to: Experiment | ProcessGroup, name: str) -> Process:
    return to.new_process(name, container_image="image", command="true")


def group_of(exp: Experiment, *names: str) -> list[Process]:
    group = exp.new_process_group("squad")
    return [new(group, name) for name in names]


def pods(exp: Experiment) -> dict[str, dict]:
    """Return the specs of the Pods that a launch would create."""
    return {
        body["metadata"]["name"]: body["spec"]
        for body in KubeCluster().manifest(exp)
        if body["kind"] == "Pod"
    }


def asked(specs) -> MachineResources:
    """Return the sum of the requests of Pods, parsed independently of the code under test."""
    total = {"cpu": Decimal(0), "memory": Decimal(0), "gpu": Decimal(0)}
    for spec in specs:
        for container in spec["containers"]:
            given = container["resources"]
            total["cpu"] += amount(given["requests"]["cpu"], "m", Decimal("0.001"))
            total["memory"] += amount(given["requests"]["memory"], "Mi", Decimal(1))
            total["gpu"] += int(given.get("limits", {}).get("nvidia.com/gpu", 0))
    return MachineResources(
        millicores=int(total["cpu"] * 1000), memory_m=int(total["memory"]), gpus=int(total["gpu"])
    )


def amount(text: str, suffix: str, unit: Decimal) -> Decimal:
    return Decimal(text.removesuffix(suffix)) * (unit if text.endswith(suffix) else 1)


def fits(what: MachineResources, where: MachineResources) -> bool:
    return (
        what.millicores <= where.millicores
        and what.memory_m <= where.memory_m
        and what.gpus <= where.gpus
    )


# --- shares ---


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_shares_fit_on_one_machine(pool):
    dispatcher = NodePoolDispatcher([pool])
    for n in range(1, 17):
        if pool.capacity.gpus % n:
            with pytest.raises(SpecError, match="process_per_machine can be 1"):
                dispatcher.assign_to_machine(
                    Process("p"), node_pool_name=pool.name, process_per_machine=n
                )
            continue
        alone, together = Experiment("alone"), Experiment("together")
        group = together.new_process_group("squad")
        for i in range(n):
            for to in (alone, group):
                process = new(to, f"p{i}")
                dispatcher.assign_to_machine(
                    process, node_pool_name=pool.name, process_per_machine=n
                )
        specs = pods(alone)
        assert len(specs) == n
        assert fits(asked(specs.values()), pool.allocatable)
        assert asked(specs.values()) == asked(pods(together).values())
        assert asked(specs.values()).gpus == pool.capacity.gpus
        assert pool.allocatable.millicores - asked(specs.values()).millicores < n
        assert pool.allocatable.memory_m - asked(specs.values()).memory_m < n


machines = st.builds(
    MachineResources,
    millicores=st.integers(250, 416_000),
    memory_m=st.integers(600, 12 * 2**20),
    gpus=st.sampled_from([0, 0, 1, 2, 3, 4, 8, 16]),
)
reserves = st.builds(
    Reserve,
    pods_millicores=st.integers(0, 1000),
    pods_memory_m=st.integers(0, 2000),
    kernel_memory_m=st.integers(0, 2000),
    eviction_memory_m=st.integers(0, 500),
)


@given(machines, reserves, st.integers(1, 16))
def test_shares_of_any_machine_fit_or_are_refused(machine, reserve, n):
    left = reserve.allocatable(machine)
    assert not left.millicores or left.millicores + reserve.pods_millicores <= machine.millicores
    assert not left.memory_m or left.memory_m + reserve.pods_memory_m <= machine.memory_m
    pool = NodePool(name="any", selector=("name", "any"), capacity=machine, allocatable=left)
    dispatcher, exp = NodePoolDispatcher([pool]), Experiment("e")
    group = exp.new_process_group("squad")
    try:
        for i in range(n):
            dispatcher.assign_to_machine(
                new(group, f"p{i}"), node_pool_name="any", process_per_machine=n
            )
    except SpecError:
        assert machine.gpus % n or left.millicores < n or left.memory_m < n
    else:
        assert fits(asked(pods(exp).values()), left)


def test_gpu_is_an_equal_share_of_its_machine(lab, exp):
    lab.assign_to_gpu(new(exp, "one"), node_pool_name="v100")
    lab.assign_to_machine(new(exp, "same"), node_pool_name="v100", process_per_machine=4)
    one, same = pods(exp)["one"], pods(exp)["same"]
    assert one["containers"][0]["resources"] == same["containers"][0]["resources"]
    assert one["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert one["nodeSelector"] == same["nodeSelector"] == {"name": "v100"}


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (
            3,
            "3 processes cannot evenly share the 4 GPUs .*'v100': there process_per_machine can "
            "be 1, 2, 4",
        ),
        (
            8,
            "8 processes are more than the 4 GPUs .*'v100': there process_per_machine can be 1, "
            "2, 4",
        ),
        (0, "process_per_machine must be at least 1, not 0"),
    ],
)
def test_invalid_number_of_shares(lab, exp, n, message):
    process = new(exp, "p")
    with pytest.raises(SpecError, match=message):
        lab.assign_to_machine(process, node_pool_name="v100", process_per_machine=n)
    assert process.settings.dump() == {}


def test_machine_without_allocatable_memory_is_refused(exp):
    lab = GKEDispatcher(LAB, reserve=Reserve(pods_memory_m=7000))
    with pytest.raises(
        SpecError, match="a machine of node pool 'small' has no resources to give .*another Reserve"
    ):
        lab.assign_to_machine(new(exp, "p"), node_pool_name="small")


def test_share_without_cpu_is_refused(exp):
    pool = NodePool(
        name="tiny",
        selector=("name", "tiny"),
        capacity=MachineResources(millicores=100, memory_m=100),
        allocatable=MachineResources(millicores=8, memory_m=100),
    )
    tiny = NodePoolDispatcher([pool])
    tiny.assign_to_machine(new(exp, "p"), node_pool_name="tiny", process_per_machine=8)
    with pytest.raises(
        SpecError, match="a share of 1/9 of a machine of node pool 'tiny' has no resources to give"
    ):
        tiny.assign_to_machine(new(exp, "q"), node_pool_name="tiny", process_per_machine=9)


# --- pools ---


@pytest.mark.parametrize(
    ("pool", "tolerations"),
    [
        ("small", None),
        (
            "medium",
            [
                {
                    "key": "exclusive_workload",
                    "operator": "Equal",
                    "value": "exclusive",
                    "effect": "NoExecute",
                }
            ],
        ),
        ("v100", [GPUS]),
        (
            "v100-team",
            [{"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}, GPUS],
        ),
    ],
)
def test_selector_and_tolerations_of_a_pool(lab, exp, pool, tolerations):
    chosen = lab.assign_to_node_pool(new(exp, "p"), node_pool_name=pool)
    assert chosen is lab.get_node_pool(pool)
    spec = pods(exp)["p"]
    assert spec["nodeSelector"] == {"name": pool}
    assert spec.get("tolerations") == tolerations
    assert "resources" not in spec["containers"][0]


def test_member_places_its_group_and_has_its_own_requests(lab, exp):
    a, b = group_of(exp, "a", "b")
    lab.assign_to_machine(a, node_pool_name="medium", process_per_machine=2)
    lab.assign_to_node_pool(
        b, node_pool_name="medium", process_group=b.group, cpu="250m", memory_m=100.5
    )
    assert a.settings.node_selector == {}
    spec = pods(exp)["squad"]
    assert spec["nodeSelector"] == {"name": "medium"}
    assert len(spec["tolerations"]) == 1
    by_name = {item["name"]: item["resources"]["requests"] for item in spec["containers"]}
    assert by_name == {
        "a": {"cpu": "3705m", "memory": "12758Mi"},
        "b": {"cpu": "250m", "memory": "101Mi"},
    }


def test_assignment_before_a_process_is_added_to_its_group(lab, exp):
    group = exp.new_process_group("squad")
    processes = [Process(name, container_image="image", command="true") for name in ("a", "b", "c")]
    for process in processes[:2]:
        lab.assign_to_machine(
            process, node_pool_name="medium", process_per_machine=2, process_group=group
        )
    with pytest.raises(SpecError, match=r"group 'squad' does not fit .*a 3.705, b 3.705, c 0.1"):
        lab.assign_to_node_pool(processes[2], node_pool_name="medium", process_group=group, cpu=0.1)
    group.add_processes(processes[:2])
    assert pods(exp)["squad"]["nodeSelector"] == {"name": "medium"}


def test_adding_an_assigned_process_to_another_group_is_refused(lab, exp):
    meant, other = ProcessGroup("meant"), exp.new_process_group("other")
    process = Process("p", container_image="image", command="true")
    lab.assign_to_node_pool(process, node_pool_name="medium", process_group=meant)
    message = "process 'p' was assigned to machines with process_group='meant', but is added to "
    with pytest.raises(
        SpecError,
        match=f"{message}the group 'other'; add it to the group 'meant', or assign it again",
    ):
        other.add_process(process)
    with pytest.raises(SpecError, match=f"{message}experiment '{exp.name}' without a group; "):
        exp.add_process(process)
    # After another assignment it can be added, and the first group has no placement.
    lab.assign_to_node_pool(process, node_pool_name="medium", process_group=other)
    other.add_process(process)
    assert (meant.settings.node_selector, meant.settings.tolerations) == ({}, [])
    assert pods(exp)["other"]["nodeSelector"] == {"name": "medium"}


def test_group_stays_placed_for_its_other_members(lab, exp):
    one, two = exp.new_process_group("one"), exp.new_process_group("two")
    first, second = (Process(name, container_image="image", command="true") for name in "ab")
    for process in (first, second):
        lab.assign_to_node_pool(process, node_pool_name="medium", process_group=one)
    lab.assign_to_node_pool(second, node_pool_name="small", process_group=two)
    assert (one.settings.node_selector, two.settings.node_selector) == (
        {"name": "medium"},
        {"name": "small"},
    )


def test_adding_a_lone_assigned_process_suggests_process_group(lab, exp):
    group = exp.new_process_group("squad")
    process = Process("p", container_image="image", command="true")
    lab.assign_to_node_pool(process, node_pool_name="medium")
    with pytest.raises(
        SpecError,
        match="node_selector, tolerations; set them on the group 'squad', or give process_group=",
    ):
        group.add_process(process)
    lab.assign_to_node_pool(process, node_pool_name="medium", process_group=group)
    group.add_process(process)
    assert pods(exp)["squad"]["nodeSelector"] == {"name": "medium"}


@pytest.mark.parametrize("reserve", [{"pods_millicores": 1}, 500, False])
def test_invalid_reserve_is_refused(reserve):
    message = r"reserve must be a Reserve, for example Reserve\(pods_millicores="
    with pytest.raises(SpecError, match=message):
        GKEDispatcher(LAB, reserve=reserve)
    with pytest.raises(SpecError, match=message):
        NodePoolDispatcher.from_cluster(Cluster.new("kube"), reserve=reserve)


@pytest.mark.parametrize("key", ["process", "self"])
def test_configuration_with_reserved_keys_is_refused(lab, exp, key):
    with pytest.raises(SpecError, match=f"assign_to='machine' has the unknown key '{key}'"):
        lab.assign_to(new(exp, "p"), **{"assign_to": "machine", "node_pool_name": "medium", key: 3})


def test_process_can_be_a_keyword_argument(lab, exp):
    assert (
        lab.assign_to(process=new(exp, "p"), assign_to="machine", node_pool_name="medium").name
        == "medium"
    )
    with pytest.raises(SpecError, match="only a Process can be assigned, not None"):
        lab.assign_to(assign_to="machine", node_pool_name="medium")


@pytest.mark.parametrize(
    ("needs", "pool"),
    [
        ({"cpu": 1}, "small"),
        ({"cpu": "1.43", "memory_m": "4668"}, "small"),
        ({"cpu": 1.431}, "medium"),
        ({"memory_m": 4669}, "medium"),
        ({"memory_m": 40000}, "k80"),
        ({"cpu": 20}, "v100"),
        ({"gpu_count": 1}, "k80"),
        ({"gpu_count": 2}, "v100-team"),
        ({"gpu_count": "3"}, "v100"),
        ({"gpu_type": V100}, "v100-team"),
        ({"gpu_type": V100, "gpu_count": 1, "cpu": 16}, "v100"),
        ({"gpu_type": "k80"}, "k80"),
        ({"gpu_type": "v100", "gpu_count": "3"}, "v100"),
        ({"cpu": 1, "gpu_count": 0}, "small"),
        ({"cpu": 1, "node_pool_name": "v100"}, "v100"),
    ],
)
def test_smallest_pool_that_fits_is_chosen(lab, exp, needs, pool):
    assert lab.assign_to_resource(new(exp, "p"), **needs).name == pool
    assert pods(exp)["p"]["nodeSelector"] == {"name": pool}


GPU_TYPES = ["nvidia-tesla-a100", "nvidia-a100-80gb", "nvidia-l4", "Tesla-K80", "nvidia-tesla-k80"]


def pools_of(*gpu_types: str) -> list[NodePool]:
    (sample,) = (pool for pool in GKEDispatcher(LAB).get_node_pools() if pool.name == "v100")
    return [replace(sample, name=f"p{i}", gpu_type=kind) for i, kind in enumerate(gpu_types)]


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("l4", "p2"),
        ("L4", "p2"),
        ("nvidia l4", "p2"),
        ("a100-80gb", "p1"),
        ("80GB", "p1"),
        ("nvidia-tesla-a100", "p0"),
        ("k80", "p3"),
    ],
)
def test_short_name_of_a_gpu_type(exp, name, pool):
    dispatcher = NodePoolDispatcher(pools_of(*GPU_TYPES))
    assert dispatcher.assign_to_gpu(new(exp, "p"), cpu=2.5, gpu_type=name, gpu_count=2).name == pool


def test_full_name_of_a_gpu_type_that_a_pool_has_by_its_short_name(exp):
    dispatcher = NodePoolDispatcher(pools_of("a100", "t4"))
    assert dispatcher.assign_to_gpu(new(exp, "p"), gpu_type="nvidia-tesla-t4").name == "p1"
    with pytest.raises(SpecError, match="type a100, not nvidia-a100-80gb"):
        dispatcher.assign_to_gpu(new(exp, "q"), gpu_type="nvidia-a100-80gb")


def test_ambiguous_name_of_a_gpu_type_is_refused(exp):
    dispatcher, process = NodePoolDispatcher(pools_of(*GPU_TYPES)), new(exp, "p")
    message = "gpu_type 'a100' is ambiguous: it can mean nvidia-a100-80gb, nvidia-tesla-a100; use"
    with pytest.raises(SpecError, match=message):
        dispatcher.assign_to_gpu(process, gpu_type="a100")
    assert process.settings.dump() == {}
    pool = dispatcher.assign_to_gpu(process, gpu_type="a100", node_pool_name="p1")
    assert pool.gpu_type == "nvidia-a100-80gb"


@pytest.mark.parametrize("name", ["nvidia", "tesla", "-"])
def test_name_without_a_gpu_type_is_refused(exp, name):
    with pytest.raises(SpecError, match=f"its GPUs are of type nvidia-tesla-k80, not {name}"):
        NodePoolDispatcher(pools_of("nvidia-tesla-k80")).assign_to_gpu(new(exp, "p"), gpu_type=name)


@given(st.permutations(POOLS), st.integers(1, 40_000), st.integers(1, 200_000), st.integers(0, 4))
def test_choice_is_independent_of_the_order_of_pools(pools, milli, memory, gpus):
    needs = {"cpu": f"{milli}m", "memory_m": memory, "gpu_count": gpus}
    chosen = NodePoolDispatcher(pools).assign_to_resource(Process("p"), **needs)
    able = [
        pool
        for pool in POOLS
        if fits(MachineResources(millicores=milli, memory_m=memory, gpus=gpus), pool.allocatable)
    ]
    size = [
        (p.allocatable.gpus, p.allocatable.millicores, p.allocatable.memory_m, p.name) for p in able
    ]
    assert chosen.name == min(size)[3]


def test_pools_with_gpus_are_reserved_for_processes_that_need_them(exp):
    sizes = GKEDispatcher(LAB.with_name("sizes.tf.json"))
    assert sizes.assign_to_resource(new(exp, "p"), cpu=60).name == "large"
    assert sizes.assign_to_resource(new(exp, "q"), memory_m=1_000_000).name == "a100"


def test_of_pools_of_one_size_the_first_by_name_is_chosen(lab, exp):
    small = lab.get_node_pool("small")
    twins = [replace(small, name=name, selector=("name", name)) for name in ("b", "a", "c")]
    assert NodePoolDispatcher(twins).assign_to_resource(new(exp, "p"), cpu=1).name == "a"


@pytest.mark.parametrize(
    ("cpu", "request_"),
    [
        (0.1, "100m"),
        (0.29, "290m"),
        (1.0001, "1001m"),
        ("0.0001", "1m"),
        ("250m", "250m"),
        (2.0, "2"),
        (1e-05, "1m"),
    ],
)
def test_notation_of_requested_cores(lab, exp, cpu, request_):
    process = new(exp, "p")
    lab.assign_to_resource(process, cpu=cpu, node_pool_name="medium")
    assert process.settings.resource_request == {"cpu": request_}


def test_each_pool_that_does_not_fit_is_reported(lab, exp):
    process = new(exp, "p")
    with pytest.raises(SpecError) as caught:
        lab.assign_to_resource(
            process, cpu=10, memory_m=60000, gpu_type="nvidia-tesla-v10", gpu_count=2
        )
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(
        "process 'p' fits no node pool: small: cpu 10 is more than 1.43 (of 2), memory 60000 MiB is"
    )
    assert "medium: cpu 10 is more than 7.41 (of 8)" in message
    assert "it has no GPUs; k80:" in message
    assert (
        "2 GPUs are more than 1, its GPUs are of type nvidia-tesla-k80, not nvidia-tesla-v10; "
        "v100-team:" in message
    )
    assert message.endswith(
        "v100: its GPUs are of type nvidia-tesla-v100, not nvidia-tesla-v10; did you mean "
        "'nvidia-tesla-v100'?"
    )
    assert process.settings.dump() == {}


def test_named_pool_that_does_not_fit(lab, exp):
    message = (
        r"^process 'p' does not fit a machine of node pool 'small': "
        r"cpu 2 is more than 1.43 \(of 2\)$"
    )
    with pytest.raises(SpecError, match=message):
        lab.assign_to_resource(new(exp, "p"), cpu=2, node_pool_name="small")


def test_assign_to_gpu_with_other_resources(lab, exp):
    assert lab.assign_to_gpu(new(exp, "p"), cpu=1, memory_m=1000).name == "k80"
    assert (
        lab.assign_to_gpu(new(exp, "q"), gpu_type=V100, gpu_count=2, node_pool_name="v100").name
        == "v100"
    )
    resources = pods(exp)["p"]["containers"][0]["resources"]
    assert resources == {
        "requests": {"cpu": "1", "memory": "1000Mi"},
        "limits": {"nvidia.com/gpu": "1"},
    }


# --- groups ---


def test_members_in_different_pools_are_refused(lab, exp):
    a, b = group_of(exp, "a", "b")
    lab.assign_to_machine(a, node_pool_name="medium", process_per_machine=2)
    before = exp.dump_dict()
    with pytest.raises(
        SpecError, match="group 'squad' is one Pod.*'a' .*'medium' and its process 'b' to 'v100'"
    ):
        lab.assign_to_gpu(b, node_pool_name="v100")
    assert exp.dump_dict() == before


def test_excessive_requests_are_listed_by_member(lab, exp):
    a, b, c = group_of(exp, "a", "b", "c")
    lab.assign_to_machine(a, node_pool_name="medium", process_per_machine=2)
    lab.assign_to_machine(b, node_pool_name="medium", process_per_machine=2)
    with pytest.raises(
        SpecError, match=r"group 'squad' does not fit .*cpu 8.41 \(a 3.705, b 3.705, c 1\) is more"
    ):
        lab.assign_to_resource(c, cpu=1)
    lab.assign_to_node_pool(c, node_pool_name="medium")


def test_requests_set_by_the_user_are_counted(lab, exp):
    a, b = group_of(exp, "a", "b")
    b.group.resource_request(cpu=1)
    b.resource_limit(memory="20Gi")
    with pytest.raises(
        SpecError, match=r"cpu 8.41 \(b 1, a 7.41\).*memory 45997 MiB \(b 20480, a 25517\)"
    ):
        lab.assign_to_machine(a, node_pool_name="medium")


def test_gpus_set_by_the_user_are_counted(lab, exp):
    process = new(exp, "p").resource_limit(gpu=1)
    with pytest.raises(SpecError, match="'medium': it has no GPUs"):
        lab.assign_to_node_pool(process, node_pool_name="medium")
    assert lab.assign_to_resource(process, cpu=1).name == "k80"


def test_group_moves_to_a_pool_that_fits_all_members(lab, exp):
    a, b, c = group_of(exp, "a", "b", "c")
    assert lab.assign_to_resource(a, cpu=1).name == "small"
    assert lab.assign_to_resource(b, cpu=5).name == "medium"
    assert lab.assign_to_gpu(c, gpu_type=V100, cpu=2).name == "v100-team"
    spec = pods(exp)["squad"]
    assert spec["nodeSelector"] == {"name": "v100-team"}
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["team", "nvidia.com/gpu"]


# --- repeated assignments ---


def test_second_assignment_replaces_the_first(lab, exp):
    process = new(exp, "p").add_toleration(key="mine", operator="Exists")
    lab.assign_to_gpu(process, node_pool_name="v100-team")
    lab.assign_to_node_pool(process, node_pool_name="small", memory_m=100)
    assert process.settings.dump() == {
        "resource_request": {"memory": "100Mi"},
        "node_selector": {"name": "small"},
        "tolerations": [{"key": "mine", "operator": "Exists"}],
    }


def test_selector_set_by_the_user_is_kept(lab, exp):
    process = new(exp, "p").node_selector("name", "k80")
    with pytest.raises(
        SpecError, match="process 'p' has the node selector name=k80 already, and node pool 'small'"
    ):
        lab.assign_to_node_pool(process, node_pool_name="small")
    lab.assign_to_node_pool(process, node_pool_name="k80")
    with pytest.raises(SpecError, match="has the node selector name=k80 already"):
        lab.assign_to_node_pool(process, node_pool_name="small")


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"cpu": 1}, r"request cpu 7.41 and has a limit of 1: remove resource_limit\(cpu=\)"),
        (
            {"memory": "1Gi"},
            r"request memory 25517 MiB and has a limit of 1Gi: remove resource_limit\(memory=\)",
        ),
    ],
)
def test_limit_below_the_request_is_refused(lab, exp, limit, message):
    with pytest.raises(SpecError, match=message):
        lab.assign_to_machine(new(exp, "p").resource_limit(**limit), node_pool_name="medium")


# --- configuration ---


@pytest.mark.parametrize(
    ("settings", "pool"),
    [
        (
            {
                "assign_to": "machine",
                "node_pool_name": "medium",
                "process_per_machine": "2",
                "cpu": None,
            },
            "medium",
        ),
        (
            {
                "assign_to": "gpu",
                "node_pool_name": "v100",
                "process_group": None,
                "process_per_machine": None,
            },
            "v100",
        ),
        ({"assign_to": "gpu", "node_pool_name": None, "gpu_type": V100}, "v100-team"),
        (
            {
                "assign_to": "resource",
                "cpu": 2,
                "memory_m": 2048,
                "gpu_count": None,
                "gpu_type": None,
            },
            "medium",
        ),
        ({"assign_to": "node_pool", "node_pool_name": "small"}, "small"),
    ],
)
def test_assignment_by_configuration(lab, exp, settings, pool):
    given = dict(settings)
    assert lab.assign_to(new(exp, "p"), **settings).name == pool
    assert settings == given


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"assign_to": "machin"},
            "assign_to must be one of machine, gpu, resource, node_pool, not 'machin'; did you "
            "mean",
        ),
        (
            {"assign_to": None},
            "assign_to must be one of machine, gpu, resource, node_pool, not None",
        ),
        (
            {"assign_to": "machine"},
            "assign_to='machine' needs node_pool_name; the node pools are small, medium, k80",
        ),
        (
            {"assign_to": "node_pool", "node_pool_name": None},
            "assign_to='node_pool' needs node_pool_name",
        ),
        (
            {"assign_to": "machine", "node_pool": "small"},
            "has the unknown key 'node_pool'; did you mean 'node_pool_name'",
        ),
        (
            {"assign_to": "gpu", "process_per_machine": 2},
            "assign_to='gpu' has the unknown key 'process_per_machine'",
        ),
        (
            {"assign_to": "gpu"},
            "needs node_pool_name, or resources .*pools with GPUs are k80, v100, v100-",
        ),
        (
            {"assign_to": "gpu", "node_pool_name": "small"},
            "'small' has no GPUs; pools with GPUs are k80, v100, v100-",
        ),
        (
            {"assign_to": "gpu", "gpu_count": 0},
            "gpu_count of assign_to_gpu must be at least 1, not 0",
        ),
        ({"assign_to": "resource"}, "needs at least one of cpu, memory_m, gpu_type and gpu_count"),
        ({"assign_to": "resource", "cpu": "many"}, "cpu must be a number, not 'many'"),
        (
            {"assign_to": "resource", "gpu_count": 0, "gpu_type": V100},
            "gpu_count is 0 and gpu_type is",
        ),
        (
            {"assign_to": "resource", "cpu": 1, "process_group": "squad"},
            "process_group must be a ProcessGroup, not 'squad'",
        ),
    ],
)
def test_invalid_configuration(lab, exp, settings, message):
    process = new(exp, "p")
    with pytest.raises(SpecError, match=message) as caught:
        lab.assign_to(process, **settings)
    assert "\n" not in str(caught.value)
    assert process.settings.dump() == {}


@pytest.mark.parametrize(
    ("name", "hint"), [("mediun", "did you mean 'medium'"), ("x", "there are small, medium, k80")]
)
def test_unknown_pool(lab, exp, name, hint):
    with pytest.raises(NotFound, match=f"no node pool '{name}'; {hint}"):
        lab.assign_to_machine(new(exp, "p"), node_pool_name=name)


def test_invalid_process_and_group(lab, exp):
    (a,) = group_of(exp, "a")
    other = exp.new_process_group("other")
    with pytest.raises(
        SpecError,
        match="only a Process can be assigned, not ProcessGroup.'squad'.; assign its members",
    ):
        lab.assign_to_node_pool(a.group, node_pool_name="small")
    with pytest.raises(
        SpecError, match="process 'a' is in group 'squad', and process_group is 'other'"
    ):
        lab.assign_to_node_pool(a, node_pool_name="small", process_group=other)
    with pytest.raises(SpecError, match="process 'b' is in no group, and process_group is 'other'"):
        lab.assign_to_node_pool(new(exp, "b"), node_pool_name="small", process_group=other)


# --- allocatable resources ---

GIB = 1024
# Values of real GKE nodes: machine type, nominal cores and MiB, allocatable millicores and KiB.
REPORTED = [
    ("n1-standard-1", 1, 3840, 940, int(2.56 * GIB * 1024)),
    ("n1-standard-2", 2, 7680, 1930, int(5.48 * GIB * 1024)),
    ("n1-standard-4", 4, 15360, 3920, int(12.07 * GIB * 1024)),
    ("n1-standard-8", 8, 30720, 7910, int(25.89 * GIB * 1024)),
    ("n1-standard-16", 16, 61440, 15890, int(53.57 * GIB * 1024)),
    ("n1-standard-32", 32, 122880, 31850, int(109.03 * GIB * 1024)),
    ("n1-standard-64", 64, 245760, 63770, int(224.45 * GIB * 1024)),
    ("n2-highmem-4", 4, 32768, 3920, 29085928),
    ("n2-highmem-16", 16, 131072, 15890, 122210676),
    ("n2-highmem-64", 64, 524288, 63770, 510603916),
    ("g2-standard-4", 4, 16384, 3920, 13594692),
]


@pytest.mark.parametrize(
    ("kind", "cores", "memory_m", "millicores", "kib"), REPORTED, ids=lambda item: str(item)
)
def test_allocatable_does_not_exceed_the_value_of_gke_nodes(kind, cores, memory_m, millicores, kib):
    none = Reserve(pods_millicores=0, pods_memory_m=0)
    found = none.allocatable(
        MachineResources(millicores=cores * 1000, memory_m=memory_m), machine_type=kind
    )
    assert found.millicores == millicores
    assert 0.93 * kib / 1024 < found.memory_m <= kib / 1024


@pytest.mark.parametrize(
    ("machine", "options", "left"),
    [
        (
            MachineResources(millicores=2000, memory_m=4096),
            {"machine_type": "e2-medium"},
            (940, 2636),
        ),
        (
            MachineResources(millicores=1000, memory_m=4096),
            {"machine_type": "e2-medium"},
            (940, 2636),
        ),
        (MachineResources(millicores=4000, memory_m=4096), {"max_pods": 256}, (3520, 2636)),
        (MachineResources(millicores=4000, memory_m=1400), {}, (3920, 639)),
        (MachineResources(millicores=4000, memory_m=600), {}, (3920, 0)),
    ],
)
def test_allocatable_of_special_machines(machine, options, left):
    none = Reserve(pods_millicores=0, pods_memory_m=0)
    assert none.allocatable(machine, **options) == MachineResources(
        millicores=left[0], memory_m=left[1]
    )


def test_reserve_can_be_changed(exp):
    own = GKEDispatcher(LAB, reserve=Reserve(pods_millicores=910, pods_memory_m=1000))
    assert own.get_node_pool("medium").allocatable == MachineResources(
        millicores=7000, memory_m=25285
    )
    with pytest.raises(
        SpecError, match="pods_memory_m of a Reserve must be a whole number of at least 0, not 0.5"
    ):
        Reserve(pods_memory_m=0.5)


# --- the import path ---

PROGRAM = f"""
import sys
sys.modules["urllib3"] = None  # as if it were not installed
import symphony.kube
assert not [name for name in sys.modules if name.startswith("symphony_")]
from symphony import Experiment
from symphony.kube import GKEDispatcher, KubeCluster, NodePoolDispatcher
exp = Experiment("e")
process = exp.new_process("p", command="c", container_image="i")
GKEDispatcher({str(LAB)!r}).assign_to_gpu(process, node_pool_name="v100")
assert "nvidia.com/gpu" in str(KubeCluster().manifest(exp))
try:
    NodePoolDispatcher.from_cluster(KubeCluster())
except Exception as exc:
    print(type(exc).__name__, exc)
"""


def test_only_a_running_cluster_needs_the_packages_of_the_extra():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PluginError backend 'kube' needs the package 'urllib3")


def test_names_of_the_import_path():
    import symphony.kube

    assert set(symphony.kube.__all__) <= set(dir(symphony.kube))
    assert all(getattr(symphony.kube, name).__doc__ for name in symphony.kube.__all__)
    assert symphony.kube.Process is Process
    with pytest.raises(
        AttributeError, match="module 'symphony.kube' has no attribute 'GKEDispatch'"
    ):
        _ = symphony.kube.GKEDispatch


def test_type_stub_has_the_same_names():
    import symphony.kube

    stub = ast.parse(Path(symphony.kube.__file__).with_suffix(".pyi").read_text())
    imported = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == symphony.kube._MODULES
