"""Ranks on several nodes: their nodes, and the variables that depend on these."""

from pathlib import Path

import pytest

from symphony.model import Experiment
from symphony.plan.resolve import Defaults
from symphony_slurm.job.placement import (
    Node,
    Placement,
    RunIdentity,
    render_placed,
    resolve_on_hosts,
)
from symphony_slurm.job.step_variables import remove_step_variables
from symphony_slurm.job_changes import place_again, requested
from symphony_slurm.render import JobOptions
from symphony_slurm.submit.resource_request import choose_shape

NAMES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
TASK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
NODES = ["c7", "c8"]


def planned(slots=None, **processes):
    experiment = Experiment.load_dict({"name": "e", "processes": processes})
    return resolve_on_hosts(experiment, NODES, slots or {}, backend="slurm", defaults=Defaults())


def placed(**processes):
    """Return the variables of the processes of an experiment on two nodes."""
    slots = choose_shape(planned(**processes), 2).slots
    placement = Placement(
        batch=NODES[0],
        nodes=[Node(name=name, host=name) for name in NODES],
        shell="/bin/sh",
        hides_gpus=False,
    )
    identity = RunIdentity(
        run_id="0" * 32, launched=0.0, directory=Path("/run"), working_directory=Path("/")
    )
    manifest = render_placed(planned(slots, **processes), placement, slots, identity, {})
    return {spec.name: spec.env for spec in manifest.processes}


def values(environments, names):
    return [[env[name] for name in names] for env in environments]


def test_local_ranks_count_within_a_node_and_consecutive_ranks_share_it():
    environments = placed(t={"ranks": 5, "command": "c"}).values()
    assert values(environments, NAMES) == [
        ["0", "0", "3", "0", "0"],
        ["1", "1", "3", "0", "0"],
        ["2", "2", "3", "0", "0"],
        ["3", "0", "2", "1", "1"],
        ["4", "1", "2", "1", "1"],
    ]
    assert {env["MASTER_ADDR"] for env in environments} == {"c7"}


def test_each_rank_is_a_task_of_a_step_of_its_unit():
    environments = placed(
        t={"ranks": 4, "command": "c"},
        o={"command": "c", "resource_request": {"cpu": 8}},
    )
    # The other process fills a node, so all ranks are on the second one.
    first = environments["t-0"]
    assert first["SLURM_STEP_NODELIST"] == "c8"
    assert (first["SLURM_NTASKS"], first["SLURM_NTASKS_PER_NODE"]) == ("4", "4")
    assert first["JAX_COORDINATOR_ADDRESS"] == f"c8:{first['MASTER_PORT']}"
    assert not [name for name in environments["o"] if name.startswith("SLURM_")]


def test_tasks_of_a_unit_on_two_nodes():
    environments = placed(t={"ranks": 3, "command": "c", "env": {"JAX_COORDINATOR_ADDRESS": "x"}})
    assert values(environments.values(), TASK) == [
        ["0", "0", "0"],
        ["1", "1", "0"],
        ["2", "0", "1"],
    ]
    last = environments["t-2"]
    assert (last["SLURM_STEP_NODELIST"], last["SLURM_STEP_NUM_NODES"]) == ("c7,c8", "2")
    assert last["SLURM_STEP_TASKS_PER_NODE"] == "2,1"
    assert "SLURM_NTASKS_PER_NODE" not in last
    assert last["JAX_COORDINATOR_ADDRESS"] == "x"


def test_ranks_with_their_own_gpus_are_nodes_and_tasks_of_their_own():
    environments = placed(t={"ranks": 2, "command": "c", "resource_limit": {"gpu": 1}}).values()
    assert values(environments, NAMES) == [["0", "0", "1", "0", "0"], ["1", "0", "1", "1", "1"]]
    assert values(environments, TASK) == [["0", "0", "0"], ["1", "0", "1"]]


def test_ranks_that_request_different_amounts_keep_their_nodes():
    ranks = {
        f"t-{number}": {
            "rank_of": "t",
            "command": "c",
            "resource_request": {"cpu": 4 if number == 1 else 2},
        }
        for number in range(3)
    }
    assert choose_shape(planned(**ranks), 2).slots == {"t-1": 0, "t-0": 1, "t-2": 1}


@pytest.mark.parametrize(
    ("running", "slots"),
    [
        ({"p": 0}, [0, 0, 1, 1]),
        ({"p": 0, "t-0": 1, "t-1": 0}, [1, 0, 1, 0]),
    ],
)
def test_added_ranks_are_placed_in_order_and_running_ones_keep_their_nodes(running, slots):
    plan = planned(p={"command": "c"}, t={"ranks": 4, "command": "c"})
    job = requested(plan, choose_shape(plan, 2), JobOptions())
    found, _ = place_again(plan, running, job)
    assert [found[f"t-{number}"] for number in range(4)] == slots


def test_processes_inherit_nothing_of_the_step_of_their_agent():
    environ = {
        "SLURM_PROCID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_TRES_PER_TASK": "cpu=3",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "c[7-8]",
        "PMI_RANK": "1",
        "PMIX_NAMESPACE": "x",
        "PMIX_MCA_gds": "hash",
        "HOME": "/",
    }
    remove_step_variables(environ)
    assert list(environ) == ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "PMIX_MCA_gds", "HOME"]
