"""What a job requests, and how its processes are divided among nodes."""

import pytest

from symphony.errors import SpecError
from symphony.model import Experiment
from symphony.plan.resolve import resolve
from symphony_slurm.submit.resource_request import choose_shape
from tests.unit.slurm.plans import SCHEME, plan_of


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


def test_nodes_are_selected_by_type_of_gpus_and_by_features():
    plan = plan_of({"gpu": 1}, {}, selectors={"rack": "r1", "infiniband": "true"})
    arguments = choose_shape(plan, 1, gpu_type="a100", exclusive=True).arguments()
    expected = ["--gres=gpu:a100:1", "--constraint=r1&infiniband", "--exclusive"]
    assert arguments[-3:] == expected
    without_gpus = choose_shape(plan_of({}), 1, gpu_type="a100").arguments()
    assert without_gpus[-1] == "--cpus-per-task=1"


def test_processes_that_select_different_nodes_are_refused():
    experiment = Experiment("test")
    for name in ("a100", "v100"):
        experiment.new_process(name, command="true").node_selector("gpu", name)
    plan = resolve(experiment, SCHEME)
    with pytest.raises(
        SpecError, match="'a100' and 'v100' select nodes with different values of 'gpu'"
    ) as refusal:
        choose_shape(plan, 1)
    assert refusal.value.path == ("processes", "v100", "node_selector", "gpu")
