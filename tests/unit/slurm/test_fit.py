"""What does not fit a partition."""

from dataclasses import replace

import pytest

from symphony.errors import SpecError
from symphony_slurm.submit.partition_limits import check_fits
from symphony_slurm.submit.partitions import NodeSize, Partition, parse_partitions
from symphony_slurm.submit.resource_request import choose_shape
from tests.unit.slurm.plans import plan_of

SMALL = NodeSize(count=4, cpus=8, memory_mib=4000, gpus=2)


def partition_of(*sizes, name="main", **limits):
    return Partition(name=name, sizes=sizes, **limits)


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
        check_fits(choose_shape(plan, nodes), [partition_of(SMALL)], None, None)


def test_a_partition_without_gpus_is_named():
    cpu_partition = partition_of(NodeSize(count=4, cpus=8, memory_mib=4000, gpus=0), name="cpu")
    with pytest.raises(
        SpecError, match="'p0' requests 1 CPU, 1 GPU, .* partition 'cpu' has 8 CPUs"
    ) as refusal:
        check_fits(choose_shape(plan_of({"gpu": 1}), 1), [cpu_partition], "cpu", None)
    assert refusal.value.path == ("processes", "p0")


def test_some_large_nodes_are_sufficient():
    large = NodeSize(count=1, cpus=64, memory_mib=4000, gpus=0)
    check_fits(choose_shape(plan_of({"cpu": 64}), 1), [partition_of(SMALL, large)], None, None)


def test_one_of_several_partitions_is_sufficient():
    small = partition_of(SMALL, name="small", time_limit=60)
    large = partition_of(SMALL, name="large")
    shape = choose_shape(plan_of({}), 1)
    check_fits(shape, [small, large], "small,large", 3600)
    with pytest.raises(SpecError, match="partition 'small' allows 0:01:00"):
        check_fits(shape, [small], "small", 3600)


@pytest.mark.parametrize(
    ("limits", "options", "time_limit", "message"),
    [
        (
            {"time_limit": 600},
            {},
            900,
            "the job needs a time limit of 0:15:00, but the default partition allows 0:10:00; "
            "lower the deadline or the time limit, or choose another partition",
        ),
        ({"time_limit": 600}, {}, 0, "the job needs no time limit, but .* allows 0:10:00"),
        (
            {"max_nodes": 1},
            {},
            None,
            "nodes is 2, but a job in the default partition can have at most 1 node; lower nodes",
        ),
        (
            {},
            {"selectors": {"net": "infinband"}},
            None,
            "selects nodes with the feature 'infinband', which no node of the default partition "
            "has; did you mean 'infiniband'.*; the features are infiniband, r1",
        ),
        (
            {},
            {"selectors": {"net": "infiniband", "rack": "r1"}},
            None,
            "the features infiniband, r1, but no node of the default partition has all of them",
        ),
        (
            {},
            {"gpu_type": "a10"},
            None,
            "no node of the default partition has GPUs of the type 'a10'; did you mean 'a100'",
        ),
        (
            {},
            {"gpu_type": "v100"},
            None,
            "'p0' requests 1 CPU, 2 GPUs, but the largest node of the default partition has "
            "8 CPUs, 4000 MiB of memory, 1 GPU",
        ),
        (
            {},
            {"selectors": {"rack": "r1"}},
            None,
            "'p0' requests 1 CPU, 2 GPUs, but the largest node of the default partition that "
            "node_selector selects has 8 CPUs, 4000 MiB of memory, 1 GPU",
        ),
    ],
)
def test_limits_of_a_partition_are_checked(limits, options, time_limit, message):
    a100 = replace(SMALL, gpu_types={"a100": 2}, features=frozenset({"infiniband"}))
    v100 = replace(SMALL, gpus=1, gpu_types={"v100": 1}, features=frozenset({"r1"}))
    selectors = options.pop("selectors", None)
    shape = choose_shape(plan_of({"gpu": 2}, {"gpu": 2}, selectors=selectors), 2, **options)
    with pytest.raises(SpecError, match=message):
        check_fits(shape, [partition_of(a100, v100, **limits)], None, time_limit)


def test_output_of_sinfo_is_parsed():
    output = (
        "main*|3|8+|4000|infinite|1-infinite|gpu:a100:2(S:0,1),gpu:v100:1|ib,r1\n"
        "main*|1|64|9000+|infinite|1-infinite|(null)|(null)\n"
        "short|4|8|4000|1-00:10:00|1-2|gpu:4|ib\n"
    )
    main, short = parse_partitions(output)
    gpus, large = main.sizes
    assert (main.name, main.is_default, main.time_limit, main.max_nodes) == (
        "main",
        True,
        None,
        None,
    )
    assert (gpus.count, gpus.cpus, gpus.memory_mib, gpus.gpus) == (3, 8, 4000, 3)
    assert (gpus.gpu_types, gpus.features) == ({"a100": 2, "v100": 1}, {"ib", "r1"})
    assert (large.cpus, large.gpus, large.features) == (64, 0, frozenset())
    assert (short.is_default, short.time_limit, short.max_nodes) == (False, 87000, 2)
    assert (short.sizes[0].gpus, short.sizes[0].gpu_types) == (4, {"": 4})
