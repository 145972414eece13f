"""Ranks: copies of a process that start, restart and fail together."""

from __future__ import annotations

from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.model.document.scaling import Source
from symphony.plan.changes import Changes, compare, snapshot_of_plan
from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.plan.state import Track
from symphony.plan.unit_decision import UnitDecision, decide_unit
from symphony.status import ReasonCode, State
from symphony.supervised.processes.spec import ProcessSpec, with_thread_limit

SCHEME = AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")


def described(**processes: Any) -> Experiment:
    return Experiment.load_dict({"name": "e", "processes": processes})


def training(ranks: int = 3, **settings: Any) -> Experiment:
    return described(train={"ranks": ranks, "command": "c", **settings})


def planned(experiment: Experiment) -> Plan:
    return resolve(experiment, SCHEME)


def values(plan: Plan, rank: int) -> dict[str, str]:
    return plan.environment(plan.processes[rank])


def test_each_rank_has_the_variables_of_a_distributed_program() -> None:
    plan = planned(training())
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "NODE_RANK": "0",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "7000",
    }
    found = values(plan, 1)
    assert {name: found[name] for name in expected} == expected
    assert {name: found[f"SYMPHONY_{name}"] for name in expected} == expected
    assert found["TORCHELASTIC_RUN_ID"] == "train"
    assert found["SYMPH_TRAIN_MASTER_ADDR"] == "127.0.0.1:7000"
    assert plan.addresses["train-master"].owner == "train-0"


def test_a_rank_with_its_own_gpus_is_a_node_of_its_own() -> None:
    found = values(planned(training(resource_limit={"gpu": 1})), 2)
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    assert [found[name] for name in names] == ["2", "0", "1", "2"]


def test_ranks_in_a_program_are_those_in_a_file() -> None:
    program = Experiment("e")
    assert len(program.new_ranks("train", 3, command="c")) == 3
    assert planned(program) == planned(training())
    assert planned(Experiment.load_dict(program.dump_dict())) == planned(training())
    with pytest.raises(SpecError, match="ranks must be at least 1, not 0"):
        Experiment("e").new_ranks("train", 0)


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        (
            {"t": {"ranks": 2, "replicas": 2, "command": "c"}},
            "a process with ranks cannot have replicas; each copy would be a unit of its own, so "
            "describe each unit as a process",
        ),
        ({"t": {"ranks": 0, "command": "c"}}, "ranks must be at least 1, not 0"),
        ({"t": {"ranks": "two"}}, "ranks must be a whole number, not 'two'"),
        (
            {"g": {"ranks": 2, "processes": {"p": {"command": "c"}}}},
            "a group cannot have ranks; set ranks of a process",
        ),
        (
            {"g": {"processes": {"p": {"ranks": 2, "command": "c"}}}},
            "a member of a group cannot have ranks; move the process out of the group",
        ),
        (
            {"g": {"processes": {"p": {"rank_of": "t", "command": "c"}}}},
            "process 'g/p': is a rank in the group 'g'; move it out of the group, because its "
            "ranks are a unit of their own",
        ),
        (
            {"t": {"ranks": 2, "command": "c", "env": {"MASTER_PORT": 29500}}},
            "process 't-0': sets the variable MASTER_PORT, which symphony sets for each rank; "
            "remove it",
        ),
        (
            {"t": {"ranks": 2, "command": "c", "binds": {"metrics": 9000}}},
            "'t-0' and 't-1' both bind service 'metrics' on port 9000 on one machine; remove the "
            "port, so that each gets its own, or give each a port of its own, as in metrics: "
            "80${index}",
        ),
        (
            {"t": {"ranks": 2, "command": "c"}, "p": {"command": "c", "binds": "t-master"}},
            "process 'p': binds service 't-master', which the ranks of 't' bind; rename the "
            "service",
        ),
        (
            {"t": {"command": "c", "together_or_not": True}},
            "process 't': has together_or_not, but no ranks; remove it, or set ranks",
        ),
        (
            {"t": {"command": "c", "jobset": True}},
            "process 't': has jobset, but no ranks; remove it, or set ranks",
        ),
        (
            {
                "t-0": {"rank_of": "t", "command": "c", "jobset": True},
                "t-1": {"rank_of": "t", "command": "c"},
            },
            "process 't-1': has another value of jobset than other ranks of its unit; set the same "
            "jobset for all ranks, because a JobSet contains all of them",
        ),
        (
            {"t": {"ranks": 2, "command": "c", "jobset": True, "together_or_not": True}},
            "process 't-0': has both jobset and together_or_not, but only symphony releases ranks "
            "that are not all scheduled, and not the controller of a JobSet; remove one of them; "
            "with queue, a JobSet is admitted as a whole",
        ),
        (
            {"t" * 60: {"ranks": 2, "command": "c"}},
            f"process '{'t' * 60}-0': needs the service '{'t' * 60}-master', whose name has more "
            "than 63 characters; give the ranks a shorter name",
        ),
    ],
)
def test_errors_in_ranks(processes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        planned(described(**processes))
    assert str(caught.value) == message


def test_the_experiment_does_not_set_a_variable_of_ranks() -> None:
    experiment = training().set_env("MASTER_PORT", 29500)
    with pytest.raises(SpecError) as caught:
        planned(experiment)
    assert str(caught.value) == (
        "the experiment sets the variable MASTER_PORT, which symphony sets for each rank; remove "
        "it, or set it for the processes without ranks that need it"
    )
    planned(described(p={"command": "c"}).set_env("MASTER_PORT", 29500))


@pytest.mark.parametrize("name", ["train", "train-1"])
def test_scale_refuses_ranks(name: str) -> None:
    source = Source({"name": "e", "processes": {"train": {"ranks": 2}}})
    with pytest.raises(SpecError, match="has ranks, and the number of ranks of a running unit"):
        source.scaled({name: 3})


def changes(old: Experiment, new: Experiment) -> Changes:
    return compare(*(snapshot_of_plan(planned(item)) for item in (old, new)))


def test_a_change_restarts_all_ranks_of_a_unit() -> None:
    changed = training()
    changed.get_process("train-1").set_env("A", "1")
    found = changes(training(), changed)
    assert found.names("restarted") == ["train-0", "train-1", "train-2"]
    assert "stop train-0, train-2: train-1 of the same unit is restarted" in found.lines()
    assert changes(training(2), training(3)).summary == "1 added, 2 restarted"
    assert changes(training(3), training(2)).summary == "1 removed, 2 restarted"


@pytest.mark.parametrize(
    ("ranks", "cores", "env", "environ", "threads"),
    [
        (4, 8, {}, {}, "2"),
        (3, 8, {}, {}, "2"),
        (4, 2, {}, {}, "1"),
        (4, 8, {"OMP_NUM_THREADS": "5"}, {}, "5"),
        (4, 8, {}, {"OMP_NUM_THREADS": "5"}, None),
    ],
)
def test_ranks_share_the_cores_unless_the_number_of_threads_is_set(
    ranks: int, cores: int, env: dict[str, str], environ: dict[str, str], threads: str | None
) -> None:
    spec = ProcessSpec(name="t-0", argv=("true",), cwd="/", env=env, unit="t")
    found = with_thread_limit(spec, ranks, cores, environ)
    assert found.env.get("OMP_NUM_THREADS") == threads


RUNNING = Track(state=State.RUNNING, started=1.0)
SUCCEEDED = Track(state=State.SUCCEEDED, exit_code=0, ended=2.0)
FAILED = Track(state=State.FAILED, exit_code=3, ended=5.0)
WAITING = Track(state=State.PENDING, exit_code=9, ended=4.0, next_start=8.0, failures_in_row=2)
STOPPED = Track(state=State.FAILED, exit_code=143, ended=5.0, stopped=True)


@pytest.mark.parametrize(
    ("tracks", "decision"),
    [
        ([RUNNING, RUNNING], None),
        ([Track(), Track()], None),
        ([RUNNING, SUCCEEDED], None),
        ([STOPPED, RUNNING], None),
        (
            [RUNNING, FAILED],
            UnitDecision(
                action="fail",
                rank="t-1",
                reason="the unit failed: t-1 exited with 3",
                reason_code=ReasonCode.UNIT_FAILED,
            ),
        ),
        (
            [SUCCEEDED, WAITING],
            UnitDecision(
                action="restart",
                rank="t-1",
                reason="the unit restarts: t-1 exited with 9",
                next_start=8.0,
                in_row=2,
            ),
        ),
        (
            [WAITING, FAILED],
            UnitDecision(
                action="fail",
                rank="t-1",
                reason="the unit failed: t-1 exited with 3",
                reason_code=ReasonCode.UNIT_FAILED,
            ),
        ),
    ],
)
def test_what_happens_to_the_other_ranks_of_a_unit(
    tracks: list[Track], decision: UnitDecision | None
) -> None:
    assert decide_unit({f"t-{rank}": track for rank, track in enumerate(tracks)}) == decision
