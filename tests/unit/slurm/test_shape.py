"""What a job requests, how its processes are divided among nodes, and what does not fit."""

import pytest

from symphony.errors import SpecError
from symphony.model import Experiment
from symphony.plan.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony_slurm.shape import check_fits, choose_shape
from symphony_slurm.slurm import NodeSize, count_gpus

SMALL = NodeSize(count=4, cpus=8, memory_mib=4000, gpus=2)


def plan_of(*processes, groups=()):
    """Return the plan of processes, each of which is a mapping of requests."""
    experiment = Experiment("test")
    for number, request in enumerate(processes):
        process = experiment.new_process(f"p{number}", command="true")
        add_request(process, request)
    for number, members in enumerate(groups):
        group = experiment.new_process_group(f"g{number}")
        for index, request in enumerate(members):
            add_request(group.new_process(f"m{number}-{index}", command="true"), request)
    scheme = AddressScheme(backend="slurm", host=lambda _: "", bind_host="")
    return resolve(experiment, scheme)


def add_request(process, request):
    limits = {key: request.pop(key) for key in ("gpu",) if key in request}
    if request:
        process.resource_request(**request)
    if limits:
        process.resource_limit(**limits)


@pytest.mark.parametrize(
    ("plan", "arguments"),
    [
        (plan_of({}), ["--cpus-per-task=1"]),
        (plan_of({}, {}, {"cpu": 2}), ["--cpus-per-task=4"]),
        (plan_of({"cpu": "100m"}, {"cpu": "200m"}), ["--cpus-per-task=1"]),
        (plan_of(*[{"cpu": "100m"}] * 11), ["--cpus-per-task=2"]),
        (plan_of({"memory": "1Gi"}, {"memory": "1.5Mi"}), ["--cpus-per-task=2", "--mem=1026M"]),
        (plan_of({"gpu": 1}, {"gpu": 2}), ["--cpus-per-task=2", "--gres=gpu:3"]),
    ],
)
def test_one_node_has_the_sum_of_all_requests(plan, arguments):
    assert choose_shape(plan, 1).arguments() == ["--nodes=1", "--ntasks-per-node=1", *arguments]


def test_nodes_get_similar_amounts_and_groups_stay_together():
    plan = plan_of({"cpu": 4}, {"cpu": 1}, {"cpu": 1}, groups=[[{"cpu": 1}, {"cpu": 1}]])
    shape = choose_shape(plan, 2)
    assert (shape.nodes, shape.cpus) == (2, 4)
    assert shape.slots == {"p0": 0, "p1": 1, "p2": 1, "m0-0": 1, "m0-1": 1}


def test_processes_without_gpus_are_divided_by_their_cpus():
    shape = choose_shape(plan_of({"gpu": 1}, {}, {}, {}), 2)
    assert shape.slots == {"p0": 0, "p1": 1, "p2": 1, "p3": 1}


def test_more_nodes_than_processes_are_refused():
    with pytest.raises(SpecError, match=r"nodes is 3, but .* has only 2 processes"):
        choose_shape(plan_of({}, {}), 3)


@pytest.mark.parametrize(
    ("plan", "nodes", "message"),
    [
        (
            plan_of({"cpu": 5}, {"cpu": 4}),
            1,
            "needs 1 node with 9 CPUs, but the largest node of the default partition has 8 CPUs, "
            "4000 MiB of memory, 2 GPUs; set nodes to at least 2",
        ),
        (plan_of({"gpu": 2}, {"gpu": 2}, {"gpu": 1}), 1, "5 GPUs, but .* set nodes to at least 3"),
        (plan_of({"memory": "4001Mi"}), 1, "'p0' requests 1 CPU, 4001 MiB of memory, but the larg"),
        (
            plan_of({}, {"gpu": 3}),
            2,
            "'p1' requests 1 CPU, 3 GPUs, but .*; a process or group",
        ),
        (plan_of(groups=[[{"cpu": 5}, {"cpu": 4}]]), 1, "'g0' requests 9 CPUs, but"),
        (plan_of(*[{"cpu": 8}] * 5), 5, "needs 5 nodes with 8 CPUs each, but only 4 nodes"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_arithmetic(plan, nodes, message):
    with pytest.raises(SpecError, match=message):
        check_fits(choose_shape(plan, nodes), [SMALL], None)


def test_a_partition_without_gpus_is_named():
    cpus_only = NodeSize(count=4, cpus=8, memory_mib=4000, gpus=0)
    with pytest.raises(
        SpecError, match="'p0' requests 1 CPU, 1 GPU, .* partition 'cpu' has 8 CPUs"
    ):
        check_fits(choose_shape(plan_of({"gpu": 1}), 1), [cpus_only], "cpu")


def test_some_large_nodes_are_sufficient():
    large = NodeSize(count=1, cpus=64, memory_mib=4000, gpus=0)
    check_fits(choose_shape(plan_of({"cpu": 64}), 1), [SMALL, large], None)


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0),
        ("gpu:2", 2),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:a100:4,gpu:v100:2,nvme:1", 6),
    ],
)
def test_gpus_in_the_generic_resources_of_a_node(gres, count):
    assert count_gpus(gres) == count
