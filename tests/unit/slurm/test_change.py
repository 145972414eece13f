"""A changed experiment in its job: the nodes of new processes, and what needs another job."""

import pytest

from symphony.supervised.processes.spec import ProcessSpec
from symphony_slurm.job.placement import Node, Placement
from symphony_slurm.job_changes import choose_gpus, other_requests, place_again, requested
from symphony_slurm.render import JobOptions
from symphony_slurm.submit.resource_request import choose_shape
from tests.unit.slurm.plans import plan_of

ONE = {"cpu": 1}


def job_of(plan, nodes=1, options=None):
    """Return what the job of a plan requests."""
    return requested(plan, choose_shape(plan, nodes), options or JobOptions())


def test_running_processes_keep_their_nodes_and_new_ones_use_the_room():
    job = job_of(plan_of(dict(ONE), dict(ONE), {"cpu": 2}), nodes=2)
    assert job["shape"]["cpus"] == 2
    plan = plan_of(dict(ONE), dict(ONE), dict(ONE))
    # Process p2 is new, because p2 of the job was removed by an earlier change.
    slots, problems = place_again(plan, {"p0": 1, "p1": 1}, job)
    assert (slots, problems) == ({"p0": 1, "p1": 1, "p2": 0}, [])


def test_new_member_of_a_group_runs_on_the_node_of_the_group():
    job = job_of(plan_of({"cpu": 2}, {"cpu": 2}, groups=[[dict(ONE)]]), nodes=3)
    plan = plan_of(dict(ONE), dict(ONE), groups=[[dict(ONE), dict(ONE)]])
    slots, problems = place_again(plan, {"p0": 0, "p1": 1, "m0-0": 2}, job)
    assert (slots["m0-1"], problems) == (2, [])


@pytest.mark.parametrize(
    ("plan", "nodes", "slots", "problem"),
    [
        (
            plan_of(dict(ONE), dict(ONE), dict(ONE)),
            1,
            {"p0": 0, "p1": 0},
            "the processes on its node would request 3 CPUs, but its job has 2 CPUs there",
        ),
        (
            plan_of(dict(ONE), {"cpu": 2}),
            2,
            {"p0": 0, "p1": 1},
            "the processes on node 2 of 2 would request 2 CPUs, but its job has 1 CPU on each",
        ),
        (
            plan_of(dict(ONE), {"cpu": 1, "gpu": 1}),
            1,
            {"p0": 0, "p1": 0},
            "would request 2 CPUs, 1 GPU, but its job has 2 CPUs there",
        ),
        (
            plan_of(groups=[[dict(ONE), dict(ONE)]]),
            2,
            {"m0-0": 0, "m0-1": 1},
            "the processes of 'g0' run on 2 nodes",
        ),
    ],
)
def test_change_that_does_not_fit_into_the_job_is_explained(plan, nodes, slots, problem):
    job = job_of(plan_of(dict(ONE), dict(ONE)), nodes)
    _, problems = place_again(plan, slots, job)
    assert problem in problems[0]


def test_fit_is_not_checked_if_options_of_sbatch_can_change_the_requests():
    job = job_of(plan_of(dict(ONE)), options=JobOptions(sbatch=("--cpus-per-task=4",)))
    assert place_again(plan_of(dict(ONE), dict(ONE)), {"p0": 0}, job)[1] == []


@pytest.mark.parametrize(
    ("options", "nodes", "problems"),
    [
        (JobOptions(), None, []),
        (JobOptions(partition="main"), 1, []),
        (JobOptions(partition="gpu"), 2, ["partition of its job is 'main', not 'gpu'", "not 2"]),
        (JobOptions(qos="high"), None, ["the option qos of its job is not set, not 'high'"]),
        (JobOptions(modules=("cuda",)), None, ["the option modules of its job is not set"]),
        (JobOptions(time=7200), None, ["option time of its job is not set, not 2:00:00"]),
        (JobOptions(time=0), None, ["option time of its job is not set, not unlimited"]),
    ],
)
def test_other_options_need_another_job(options, nodes, problems):
    plan = plan_of(dict(ONE))
    job = job_of(plan, options=JobOptions(partition="main"))
    found = other_requests(plan, job, options, nodes)
    assert len(found) == len(problems)
    for text, problem in zip(found, problems, strict=True):
        assert problem in text


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (None, 60.0, None),
        (600.0, 60.0, None),
        (600.0, 6000.0, "its job ends after 0:15:00, not 1:45:00"),
        (600.0, None, "its job ends after 0:15:00, because it had a deadline"),
    ],
)
def test_time_limit_of_the_job_must_be_long_enough_for_the_deadline(before, after, problem):
    plans = [plan_of(dict(ONE), deadline=deadline) for deadline in (before, after)]
    found = other_requests(plans[1], job_of(plans[0]), JobOptions(), None)
    assert found == ([problem] if problem else [])


def test_grace_period_that_is_longer_than_the_warning_needs_another_job():
    job = job_of(plan_of(dict(ONE), grace=20))
    assert other_requests(plan_of(dict(ONE), grace=30), job, JobOptions(), None) == []
    (problem,) = other_requests(plan_of(dict(ONE), grace=300), job, JobOptions(), None)
    assert problem == (
        "Slurm warns its job 60 s before the time limit, but the grace periods of its processes "
        "need 330 s"
    )


def test_other_sbatch_options_need_another_job():
    plan = plan_of(dict(ONE), sbatch_options=["--mail-type=END"])
    assert other_requests(plan, job_of(plan), JobOptions(), None) == []
    (problem,) = other_requests(plan_of(dict(ONE)), job_of(plan), JobOptions(), None)
    assert problem == "the sbatch_options of its job are --mail-type=END, not none"


def test_other_features_need_another_job():
    plan = plan_of(dict(ONE), selectors={"gpu": "a100"})
    (problem,) = other_requests(plan, job_of(plan_of(dict(ONE))), JobOptions(), None)
    assert problem == "its job has requested nodes with any feature, not a100"


def spec(name, gpus, devices):
    return ProcessSpec(
        name=name, argv=("true",), cwd="/", gpus=gpus, env={"CUDA_VISIBLE_DEVICES": devices}
    )


def test_gpus_of_removed_processes_are_chosen_last():
    placement = Placement(
        batch="n1", nodes=[Node(name="n1", host="n1", gpus="0123")], shell="sh", hides_gpus=True
    )
    old = [spec("kept", 1, "0"), spec("removed", 1, "1")]
    running = {
        "processes": [item.to_dict() for item in old],
        "slots": {"kept": 0, "removed": 0},
    }
    new = spec("new", 3, "")
    slots = {"kept": 0, "new": 0}
    assert choose_gpus(new, [old[0], new], running, placement, slots) == ["2", "3", "1"]
