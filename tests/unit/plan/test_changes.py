"""The difference between a running experiment and a new description of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from symphony.archive.run_record import launch_record
from symphony.cluster.scale import scaled_experiment
from symphony.errors import SpecError
from symphony.model import Experiment
from symphony.plan.changes import (
    RESTARTED,
    Changes,
    Snapshot,
    compare,
    idle_processes,
    launching,
    snapshot_of_plan,
)
from symphony.plan.one_shots import finished_in, finished_one_shots, in_whole_groups
from symphony.plan.resolution.addresses import AddressScheme, choose_ports
from symphony.plan.resolve import resolve
from symphony.plan.topology import of_status
from symphony.status import ExperimentStatus, ProcessStatus, State

SCHEME = AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")
LIVE = frozenset({"restart_policy"})


def rl() -> Experiment:
    experiment = Experiment("rl", secrets={"token": "token.txt"})
    experiment.new_process("replay", command=["replay"]).binds("replay")
    experiment.new_process("learner", command=["learn"], env={"SEED": "1"}).connects("replay")
    experiment.new_process("viewer", command=["view"])
    return experiment


def snapshot(experiment: Experiment, token: str = "1") -> Snapshot:
    found = snapshot_of_plan(resolve(experiment, SCHEME), secrets={"token": token})
    # A backend stores the snapshot of a running experiment as JSON.
    return Snapshot.from_dict(json.loads(json.dumps(found.to_dict())))


def changes(change: Callable[[Experiment], object], **options: str) -> Changes:
    experiment = rl()
    change(experiment)
    return compare(snapshot(rl()), snapshot(experiment, **options), live_settings=LIVE)


def set_seed(experiment: Experiment) -> None:
    experiment.get_process("learner").set_env("SEED", "2").set_env("RATE", "3")


def move_replay(experiment: Experiment) -> None:
    experiment.get_process("replay").binds({"replay": 7777})


def move_without_clients(experiment: Experiment) -> None:
    experiment.get_process("learner").settings.connects = []
    move_replay(experiment)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (lambda _: None, []),
        (
            lambda experiment: experiment.new_process("agent", command=["act"]),
            ["start agent (new)"],
        ),
        (
            set_seed,
            [
                "stop learner: env.SEED changed from '1' to '2'; env.RATE set to '3'",
                "start learner",
            ],
        ),
        (
            lambda experiment: experiment.get_process("viewer").restart_policy("Always"),
            ["update viewer: restart_policy set to 'Always'"],
        ),
        (
            lambda experiment: setattr(experiment, "deadline", 60),
            ["update the experiment: deadline set to 60"],
        ),
    ],
)
def test_changes_name_each_process_that_differs_and_why(
    change: Callable[[Experiment], object], lines: list[str]
) -> None:
    found = changes(change)
    assert found.lines() == lines
    assert found.is_empty == (not lines)


def test_the_new_address_of_a_service_restarts_exactly_the_processes_that_use_it() -> None:
    assert changes(move_replay).names("restarted") == ["replay", "learner"]
    assert "service 'replay' changed from" in str(changes(move_replay))
    # Any process can use a service without a declared client.
    found = compare(snapshot(_without_clients()), snapshot(_moved(_without_clients())))
    assert found.names("restarted") == ["replay", "learner", "viewer"]


def _without_clients() -> Experiment:
    experiment = rl()
    experiment.get_process("learner").settings.connects = []
    return experiment


def _moved(experiment: Experiment) -> Experiment:
    move_replay(experiment)
    return experiment


def test_new_contents_of_a_secret_restart_the_processes_that_can_read_it() -> None:
    everybody = changes(lambda _: None, token="2")
    assert everybody.names("restarted") == ["replay", "learner", "viewer"]
    old, new = rl(), rl()
    for experiment in (old, new):
        experiment.get_process("learner").set_env_secret("TOKEN", "token")
    found = compare(snapshot(old), snapshot(new, token="2"))
    assert found.names("restarted") == ["learner"]


def test_removed_processes_follow_the_others_and_an_unfinished_change_is_done_again() -> None:
    experiment = Experiment("rl", secrets={"token": "token.txt"})
    experiment.new_process("viewer", command=["view"])
    found = compare(snapshot(rl()), snapshot(experiment), unfinished=["viewer"])
    assert [(item.name, item.action) for item in found.processes] == [
        ("viewer", "restarted"),
        ("replay", "removed"),
        ("learner", "removed"),
    ]
    assert found.to_dict()["different"]
    assert str(launching(snapshot(experiment), "it does not exist")) == (
        "rl on local: it does not exist, so it is launched; 1 added\n"
    )


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (ProcessStatus(name="p", state=State.RUNNING, started=1.0), None),
        (ProcessStatus(name="p", state=State.PENDING, started=1.0, exit_code=3), None),
        (ProcessStatus(name="p", state=State.SUCCEEDED, started=1.0, exit_code=0), None),
        (
            ProcessStatus(name="p", state=State.SUCCEEDED, started=1.0, exit_code=0, stopped=True),
            "it was stopped",
        ),
        (
            ProcessStatus(name="p", state=State.FAILED, started=1.0, exit_code=3),
            "it has failed (exit code 3)",
        ),
        (
            ProcessStatus(name="p", state=State.FAILED, reason="never started: db failed"),
            "it was never started (db failed)",
        ),
        (
            ProcessStatus(name="p", state=State.UNKNOWN, started=1.0, reason="exit unknown"),
            "it is not running any more (exit unknown)",
        ),
    ],
)
def test_a_process_that_should_run_and_does_not_is_a_difference(
    process: ProcessStatus, reason: str | None
) -> None:
    assert idle_processes([process]).get("p") == reason
    assert idle_processes([process], []) == {}


def test_an_idle_process_is_started_with_its_other_changes_or_with_its_unit() -> None:
    experiment = rl()
    experiment.get_process("viewer").restart_policy("Always")
    idle = {"viewer": "it was stopped", "replay": "it has failed"}
    found = compare(snapshot(rl()), snapshot(experiment), live_settings=LIVE, idle=idle, ended=idle)
    assert found.lines() == [
        "start replay (it has failed)",
        "start viewer (restart_policy set to 'Always'; it was stopped)",
    ]
    # A process that is restarted anyway is not started in addition.
    experiment.get_process("viewer").set_env("SEED", "1")
    found = compare(snapshot(rl()), snapshot(experiment), live_settings=LIVE, idle=idle)
    assert found.names("restarted") == ["viewer"]

    unit = Experiment("unit")
    unit.new_ranks("worker", 2, command=["work"])
    described = snapshot(unit)
    found = compare(described, described, idle={"worker-1": "it has failed"}, ended=["worker-1"])
    assert found.lines() == [
        "stop worker-0: worker-1 of the same unit is started",
        "start worker-0",
        "start worker-1 (it has failed)",
    ]


def test_a_one_shot_that_has_succeeded_runs_again_only_if_its_own_settings_change() -> None:
    described = {
        "server": {"replicas": 2, "binds": "s", "cmd": "serve"},
        "migrate": {"job": True, "connects": "s", "cmd": "migrate ${s.addrs}"},
        "app": {"starts_after": {"migrate": "succeeded"}, "connects": "s", "cmd": "run"},
    }

    def with_processes(**changed: Mapping[str, Any]) -> Snapshot:
        processes = {name: {**item, **changed.get(name, {})} for name, item in described.items()}
        return snapshot(Experiment.load_dict({"name": "once", "processes": processes}))

    before, more = with_processes(), with_processes(server={"replicas": 3})
    # A change of the number restarts the clients, and changes addresses in their settings.
    restarted = compare(before, more).names(RESTARTED)
    assert restarted == ["migrate", "app"]
    found = compare(before, more, finished=["migrate"], scaled=["server-2"])
    assert found.names(RESTARTED) == ["app"]
    edited = with_processes(migrate={"cmd": "migrate again"})
    assert compare(before, edited, finished=["migrate"]).names(RESTARTED) == ["migrate"]
    assert compare(before, before, finished=["migrate"]).is_empty
    unfinished = compare(before, before, finished=["migrate"], unfinished=["migrate"])
    assert unfinished.names(RESTARTED) == ["migrate"]


def test_a_process_is_a_finished_one_shot_if_it_has_succeeded_and_others_wait_for_it() -> None:
    processes = [
        ProcessStatus(name="migrate", state=State.SUCCEEDED),
        ProcessStatus(name="seed", group="g", state=State.SUCCEEDED),
        ProcessStatus(name="other", state=State.SUCCEEDED),
        ProcessStatus(name="stopped", state=State.SUCCEEDED, stopped=True),
        ProcessStatus(name="failed", state=State.FAILED, exit_code=1),
    ]
    awaited = ["migrate", "seed", "stopped", "failed"]
    conditions = [dict.fromkeys(awaited, "succeeded"), {"other": "started"}]
    assert finished_one_shots(processes, conditions) == ["migrate", "seed"]
    status = ExperimentStatus(name="e", backend="paper", processes=tuple(processes))
    # In a topology, a link can lead to a group.
    found = of_status(status, starts_after={"other": {"migrate": "succeeded", "seed": "succeeded"}})
    assert "g" in [link.target for link in found.links]
    assert finished_in(status, found) == ["migrate", "seed"]
    assert in_whole_groups(["migrate", "seed"], processes) == ["migrate", "seed"]
    processes.append(ProcessStatus(name="server", group="g", state=State.RUNNING))
    assert in_whole_groups(["migrate", "seed"], processes) == ["migrate"]


def test_a_running_service_keeps_its_port_unless_the_port_is_fixed_or_outside_the_range() -> None:
    from symphony.plan.resolution.addresses import ServiceRequest

    requests = [
        ServiceRequest(name="new", owner="p"),
        ServiceRequest(name="kept", owner="p"),
        ServiceRequest(name="taken", owner="p"),
        ServiceRequest(name="fixed", owner="p", port=7003),
        ServiceRequest(name="outside", owner="p"),
    ]
    present = {"kept": 7001, "taken": 7003, "outside": 9999}
    assert choose_ports(requests, (7000, 7010), lambda _: None, present) == {
        "fixed": 7003,
        "kept": 7001,
        "new": 7000,
        "taken": 7002,
        "outside": 7004,
    }


# --- scaling ---

DOCUMENT = {
    "name": "rl",
    "parameters": {"agents": 2},
    "ends_with": "agent",
    "processes": {
        "agent": {"cmd": "act ${index} of ${agents}", "replicas": "${agents}"},
        "team": {"replicas": 1, "processes": {"member": {"cmd": "x", "replicas": 1}}},
        "learner": {"cmd": "learn"},
    },
}


def scaled(**counts: int | str) -> Experiment:
    experiment = Experiment.load_dict(DOCUMENT)
    experiment.deadline = 60
    return scaled_experiment(launch_record(experiment, "local", "rl-1", 0.0), counts)


def test_scale_changes_numbers_in_the_document_and_keeps_the_policies_of_the_launch() -> None:
    experiment = scaled(agent="+1", member=2)
    assert [process.name for process in experiment.list_all_processes()] == [
        "agent-0", "agent-1", "agent-2", "member-0-0", "member-0-1", "learner",
    ]  # fmt: skip
    assert experiment.get_process("agent-2").cmds == ["act 2 of 3"]
    assert experiment.deadline == 60
    assert experiment.ends_with_components() == ["agent-0", "agent-1", "agent-2"]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"agnet": 3}, "no replicated process or group 'agnet'; did you mean 'agent'"),
        ({"agent-1": 3}, "'agent-1' is one of the copies of 'agent'; scale 'agent'"),
        ({"learner": 3}, "'learner' has no replicas; add 'replicas: 1'"),
        ({"agent": "many"}, "must be a whole number, such as 16, or a difference"),
        ({"agent": "-3"}, "'agent' has 2 replicas, so -3 is not possible"),
    ],
)
def test_scale_reports_what_cannot_be_scaled(counts: dict[str, int | str], message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("+", r"\+")):
        scaled(**counts)


def test_scale_refuses_an_experiment_that_a_program_has_described_or_changed() -> None:
    experiment = Experiment.load_dict(DOCUMENT)
    experiment.get_process("learner").set_env("SEED", "1")
    for changed, message in ((experiment, "was changed by a program"), (rl(), "by a program")):
        with pytest.raises(SpecError, match=message):
            scaled_experiment(launch_record(changed, "local", "rl-1", 0.0), {"agent": 3})
