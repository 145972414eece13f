"""Ranks on Kubernetes: their Pods, and what the supervisor requests for the ranks of a unit."""

from dataclasses import replace

import pytest

from symphony import Experiment, SpecError
from symphony.status import ReasonCode, State
from symphony_kube.api.labels import RANK_OF
from symphony_kube.cluster import KubeCluster
from symphony_kube.lifecycle.attempts import next_attempt
from symphony_kube.lifecycle.supervisor.supervisor_record import Record
from symphony_kube.record.creation_problems import Problem
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import Attempt, Control
from symphony_kube.state.observe import ExperimentState
from symphony_kube.state.observed_objects import JOBS, PODS
from tests.backends.kube.decisions import actions, created_later, decided, find_startable, started
from tests.backends.kube.state.test_control import (
    ENDED,
    EXITED,
    NOW,
    RUNNING,
    STARTED,
    observe,
    pod,
)

EXIT_TIME = 1_700_000_050.0
FAILED = {"terminated": {"exitCode": 3, "startedAt": STARTED, "finishedAt": ENDED}}
SUCCEEDED = {"terminated": {"exitCode": 0, "startedAt": STARTED, "finishedAt": ENDED}}
RESTARTS = Control(
    stop=EXIT_TIME, start=EXIT_TIME, reason="the reason", code="backing-off", in_row=1
)
FAILS = Control(stop=EXIT_TIME - 1, reason="the unit failed", code="unit-failed")


def roster(*names, **policy):
    return tuple(
        Unit(
            name=name,
            processes=(name,),
            rank_of="u",
            supervised_restart=policy,
            replaced_if_lost=bool(policy),
        )
        for name in names
    )


ONCE = roster("u-0", "u-1", policy="OnFailure", max_restarts=1)
NEVER = roster("u-0", "u-1")


def running(rank, **options):
    return pod(f"u-{rank}", RUNNING, **options)


def ended(rank, state=EXITED, **options):
    return pod(f"u-{rank}", state, phase="Failed", **options)


def stops(*ranks, reason="the unit restarts: u-1 exited with 3"):
    return [f"stop {rank}: {reason}" for rank in ranks]


FAILURE = "the unit failed: u-1 exited with 3"


@pytest.mark.parametrize(
    ("units", "pods", "expected"),
    [
        (ONCE, [running(0), running(1)], []),
        (ONCE, [ended(0, SUCCEEDED), running(1)], []),
        (ONCE, [running(0), ended(1, FAILED)], stops("u-0")),
        (
            ONCE,
            [ended(0, SUCCEEDED), ended(1, FAILED)],
            ["start u-0", "start u-1 (again: exit code 3)"],
        ),
        (
            ONCE,
            [running(0, attempt=2, retries=1), ended(1, FAILED, attempt=2, retries=1)],
            stops("u-0", reason=FAILURE),
        ),
        (NEVER, [running(0), ended(1, FAILED)], stops("u-0", reason=FAILURE)),
        (NEVER, [ended(0), ended(1, FAILED)], ["finish"]),
        (NEVER, [running(0, control=FAILS), ended(1, FAILED)], []),
        # The third rank is never created.
        (
            roster("u-0", "u-1", "u-2"),
            [running(0), ended(1, FAILED)],
            stops("u-0", reason=FAILURE),
        ),
        # A user stops the unit.
        (ONCE, [running(0, control=Control(stop=EXIT_TIME)), ended(1, FAILED)], []),
        # The unit is being restarted.
        (ONCE, [running(0, control=RESTARTS), ended(1, FAILED, control=RESTARTS)], []),
        (ONCE, [running(0, attempt=2), ended(1, FAILED, control=RESTARTS)], ["start u-1"]),
    ],
)
def test_what_is_decided_for_the_ranks_of_a_unit(units, pods, expected):
    assert actions(units, observe(*pods, roster=units)) == expected


def test_the_decision_about_a_unit_is_recorded_in_its_ranks():
    (decision,) = decided(ONCE, observe(running(0), ended(1, FAILED), roster=ONCE)).units.values()
    assert (decision.rank, decision.next_start, decision.in_row) == ("u-1", EXIT_TIME, 1)
    assert decision.reason_code is ReasonCode.BACKING_OFF


def test_a_restart_that_was_recorded_in_one_rank_is_completed():
    first = replace(RESTARTS, command="restart", others="u-0:1")
    failed = ended(1, FAILED, control=first)
    observation = observe(running(0), failed, roster=ONCE)
    assert actions(ONCE, observation) == stops("u-0")
    assert find_startable(ONCE, observation) == []
    assert observation.status.note == ""
    requested = observe(running(0, control=RESTARTS), failed, roster=ONCE)
    assert actions(ONCE, requested) == []


def test_ranks_start_again_when_all_have_been_stopped():
    failed = ended(1, FAILED, control=RESTARTS)
    stopping = observe(running(0, control=RESTARTS), failed, roster=ONCE)
    assert find_startable(ONCE, stopping) == []
    stopped = observe(ended(0, control=RESTARTS), failed, roster=ONCE)
    assert find_startable(ONCE, stopped) == ["u-0", "u-1"]
    assert {process.reason_code for process in stopped.status} == {ReasonCode.BACKING_OFF}
    one_started = observe(running(0, attempt=2), failed, roster=ONCE)
    assert find_startable(ONCE, one_started) == ["u-1"]


def test_ranks_that_a_change_stops_later_start_together():
    """A change requests the start of all processes before it stops those of the last wave."""
    later = Control(start=EXIT_TIME)
    failed = ended(1, FAILED, control=later)
    observation = observe(running(0, control=later), failed, roster=ONCE)
    assert find_startable(ONCE, observation) == []
    stopped = observe(ended(0, control=RESTARTS), failed, roster=ONCE)
    assert find_startable(ONCE, stopped) == ["u-0", "u-1"]


@pytest.mark.parametrize("control", [RESTARTS, Control(stop=EXIT_TIME)])
@pytest.mark.parametrize("state", [running, ended])
def test_a_new_rank_is_not_created_beside_old_or_stopped_ones(control, state):
    units = roster("u-0", "u-1", "u-2", policy="Always")
    pods = [state(rank, control=control) for rank in (0, 1)]
    observation = observe(*pods, roster=units)
    found = started(units, observation)
    assert found == [] or set(found) == {"u-0", "u-1", "u-2"}
    assert started(units, observe(running(0), running(1), roster=units)) == ["u-2"]


def test_ranks_of_a_failed_unit_have_failed():
    observation = observe(ended(0, control=FAILS), ended(1, FAILED), roster=NEVER)
    stopped, cause = observation.status
    assert (stopped.failed, stopped.reason) == (True, "the unit failed")
    assert stopped.reason_code is ReasonCode.UNIT_FAILED
    # Both have exited in the same second.
    assert observation.status.exit_code == cause.exit_code == 3
    assert actions(NEVER, observation) == ["finish"]


# --- deleted Pods ---


def observe_deletion(units, *pods, deleted):
    """Return what a supervisor observes after the last of its Pods is deleted."""
    observer = ExperimentState("e", roster=units)
    observer.replace(PODS, [*pods, deleted])
    observer.apply(PODS, "DELETED", deleted)
    return observer.observe(NOW)


LOST = "lost: u-1 (its Pod was deleted)"


def test_a_unit_starts_again_if_the_pod_of_a_rank_is_deleted():
    observation = observe_deletion(ONCE, running(0), deleted=running(1))
    assert actions(ONCE, observation) == stops("u-0", reason=LOST)
    # This does not count as one of the permitted restarts.
    again = observe_deletion(
        ONCE, running(0, attempt=2, retries=1), deleted=running(1, attempt=2, retries=1)
    )
    assert actions(ONCE, again) == stops("u-0", reason=LOST)
    (decision,) = decided(ONCE, again).units.values()
    assert decision.reason_code is ReasonCode.DISRUPTED
    never = observe_deletion(NEVER, running(0), deleted=running(1))
    (line,) = actions(NEVER, never)
    assert line.startswith("stop u-0: the unit failed: u-1 failed (exit status unknown")


@pytest.mark.parametrize(
    ("other", "finished", "expected"),
    [
        (running(0), (), stops("u-0", reason=LOST)),
        (
            ended(0, SUCCEEDED),
            (),
            ["start u-0", "start u-1 (again: lost: its Pod was deleted)"],
        ),
        (ended(0, SUCCEEDED), ("u-1",), ["finish"]),
        (
            None,
            ("u-0",),
            ["start u-0", "start u-1 (again: lost: its Pod was deleted)"],
        ),
        (
            None,
            (),
            [
                "start u-0 (again: lost: its Pod was deleted)",
                "start u-1 (again: lost: u-0 (its Pod was deleted))",
            ],
        ),
        (None, ("u-0", "u-1"), ["finish"]),
    ],
)
def test_a_deletion_that_the_supervisor_has_not_observed(other, finished, expected):
    observer = ExperimentState("e", roster=ONCE)
    record = Record(created=frozenset({"u-0", "u-1"}), ended=frozenset(finished))
    observer.created, observer.ended = record.created, record.ended
    observer.replace(PODS, [] if other is None else [other])
    assert actions(ONCE, observer.observe(NOW), record=record) == expected


def test_a_deleted_rank_is_created_again_with_the_others():
    observation = observe_deletion(ONCE, running(0, control=RESTARTS), deleted=running(1))
    assert started(ONCE, observation) == []
    stopped = observe_deletion(ONCE, ended(0, control=RESTARTS), deleted=running(1))
    assert find_startable(ONCE, stopped) == ["u-0"]
    begun = ended(0, control=replace(RESTARTS, replaced=NOW))
    assert started(ONCE, observe_deletion(ONCE, begun, deleted=running(1))) == []
    others = [ended(0, control=replace(RESTARTS, replaced=NOW)), running(0, attempt=2, retries=1)]
    again = observe_deletion(ONCE, *others, deleted=running(1))
    assert actions(ONCE, again) == ["start u-1"]
    # Its Pod cannot be created.
    problem = Problem(text="the name is taken", time=NOW, permanent=True)
    record = Record(problems={"u-1": problem})
    (line,) = actions(ONCE, again, record=record)
    assert line.startswith("stop u-0: the unit failed: u-1 failed")


def test_the_deletion_of_the_latest_pod_does_not_lead_to_an_earlier_one():
    old = [
        ended(rank, FAILED, control=replace(RESTARTS, replaced=EXIT_TIME, others=others))
        for rank, others in ((0, ""), (1, "u-0:1"))
    ]
    second = [running(0, attempt=2), running(1, attempt=2)]
    observation = observe_deletion(ONCE, *old, second[0], deleted=second[1])
    status = observation.status.processes[1]
    assert (status.state, status.reason_code) == (State.PENDING, ReasonCode.DISRUPTED)
    assert actions(ONCE, observation) == stops("u-0", reason=LOST)


def test_a_process_whose_pod_was_deleted_is_not_restarted():
    units = (Unit(name="a", processes=("a",), supervised_restart={"policy": "Always"}),)
    observation = observe_deletion(units, pod("b", RUNNING), deleted=pod("a", RUNNING))
    assert actions(units, observation) == ["finish"]
    assert created_later(units, observation) == []


def test_a_supervisor_waits_until_the_next_attempt_is_created():
    begun = ended(1, FAILED, control=replace(RESTARTS, replaced=EXIT_TIME - 1000))
    for units, state in ((ONCE, State.PENDING), (None, State.UNKNOWN)):
        observation = observe(begun, roster=units)
        assert observation.containers["u-1"].state is state
    assert actions(ONCE, observe(begun, roster=ONCE)) == []


# --- ranks that are not all scheduled ---


def waiting(rank, **options):
    return pod(f"u-{rank}", {}, phase="Pending", node="", **options)


def within(seconds):
    units = roster("u-0", "u-1", policy="OnFailure", max_restarts=1)
    return tuple(replace(unit, within=seconds) for unit in units)


@pytest.mark.parametrize(
    ("seconds", "pods", "is_released"),
    [
        (60.0, [running(0), waiting(1)], True),
        (60.0, [running(0)], True),
        (110.0, [running(0), waiting(1)], False),
        (0.0, [running(0), waiting(1)], False),
        # A unit that holds nothing keeps waiting.
        (60.0, [waiting(0), waiting(1)], False),
        (60.0, [running(0), running(1)], False),
        (60.0, [running(0, control=Control(stop=EXIT_TIME)), waiting(1)], False),
    ],
)
def test_a_unit_is_released_if_its_ranks_are_not_scheduled_in_time(seconds, pods, is_released):
    units = within(seconds)
    decision = decided(units, observe(*pods, roster=units))
    assert bool(decision.units) is is_released
    if is_released:
        reason = "only 1 of 2 ranks could be scheduled within 60 s"
        names = [f"u-{rank}" for rank in range(len(pods))]
        assert [str(action) for action in decision.actions] == stops(*names, reason=reason)
        (unit,) = decision.units.values()
        assert (unit.reason_code, unit.rank) == (ReasonCode.UNSCHEDULABLE, names[-1])
        assert NOW + 30 <= unit.next_start <= NOW + 60


def test_the_supervisor_wakes_up_to_release_a_unit():
    units = within(110.0)
    observation = observe(running(0), waiting(1), roster=units)
    # The Pods were created 100 seconds ago.
    assert decided(units, observation).wake_at == NOW + 10.0


def scheduled(body, time):
    """Return a Pod of a rank that was assigned to its node at a certain time."""
    body["metadata"]["labels"][RANK_OF] = "u"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    body["status"]["conditions"] = [condition]
    return body


def test_the_time_of_a_unit_begins_when_its_first_rank_is_scheduled():
    units = within(60.0)
    # The Pods were created 100 seconds ago, and the first was assigned to a node after 50 seconds.
    observation = observe(scheduled(running(0), ENDED), waiting(1), roster=units)
    decision = decided(units, observation)
    assert not decision.units
    assert decision.wake_at == NOW + 10.0


def test_a_unit_keeps_its_nodes_while_another_one_releases_its_own():
    first = within(60.0)
    second = tuple(
        replace(unit, name=f"v-{rank}", processes=(f"v-{rank}",), rank_of="v")
        for rank, unit in enumerate(first)
    )
    released = Control(stop=NOW, start=NOW + 40, reason="no nodes", code="unschedulable")
    pods = [
        running(0, control=released),
        waiting(1, control=released),
        pod("v-0", RUNNING),
        pod("v-1", {}, phase="Pending", node=""),
    ]
    units = (*first, *second)
    decision = decided(units, observe(*pods, roster=units))
    assert "v" not in decision.units
    assert decision.wake_at == NOW + 20.0


def test_released_units_try_again_at_different_times():
    units = within(60.0)
    found = []
    for attempt in (1, 2, 3):
        observation = observe(
            running(0, attempt=attempt), waiting(1, attempt=attempt), roster=units
        )
        (decision,) = decided(units, observation).units.values()
        found.append(decision.next_start)
    assert len(set(found)) == 3


# --- objects ---


def training(**settings):
    settings = {"ranks": 2, "container_image": "i", "command": "c", **settings}
    return Experiment.load_dict({"name": "e", "processes": {"train": settings}})


def rendered(experiment, kind, **options):
    manifest = KubeCluster(**options).manifest(experiment)
    return [body for body in manifest if body["kind"] == kind]


def variables(pod):
    return {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}


def test_the_host_name_of_rank_0_leads_to_its_pod():
    (service,) = rendered(training(), "Service", namespace="team")
    assert service["spec"]["clusterIP"] == "None"
    pods = rendered(training(), "Pod", namespace="team")
    assert [pod["metadata"]["labels"][RANK_OF] for pod in pods] == ["train", "train"]
    assert service["spec"]["selector"][RANK_OF] == "train"
    assert [pod["spec"]["hostname"] for pod in pods] == ["e-train-0", "e-train-1"]
    assert {pod["spec"]["subdomain"] for pod in pods} == {service["metadata"]["name"]}
    # Rank 0 finds its own host name without DNS.
    hosts = [variables(pod)["MASTER_ADDR"] for pod in pods]
    assert hosts == ["e-train-0", "e-train-0.e-train-master"]


def test_a_rank_is_a_node_of_its_own():
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    found = [variables(pod) for pod in rendered(training(), "Pod")]
    assert [[env[name] for name in names] for env in found] == [
        ["0", "0", "1", "0"],
        ["1", "0", "1", "1"],
    ]


@pytest.mark.parametrize(
    "policy", ["Never", "OnFailure", {"policy": "OnFailure", "max_restarts": 2}]
)
def test_the_supervisor_restarts_ranks(policy):
    experiment = training(restart_policy=policy)
    assert [pod["spec"]["restartPolicy"] for pod in rendered(experiment, "Pod")] == ["Never"] * 2
    manifest = KubeCluster().manifest(experiment)
    assert manifest.needs_supervisor
    assert manifest.ignored == ()


@pytest.mark.parametrize(
    ("settings", "options", "fix"),
    [
        (
            {"job": {"backoff_limit": 2}},
            {},
            r"remove job\(\), and set a restart_policy with max_restarts",
        ),
        ({}, {"jobs_only": True, "namespace": "team"}, "launch without jobs_only"),
    ],
)
def test_a_rank_cannot_be_a_job(settings, options, fix):
    message = "process 'train-0' is a rank, which cannot be a Job, because a Job does not restart"
    with pytest.raises(SpecError, match=f"{message} the other ranks: {fix}"):
        rendered(training(**settings), "Pod", **options)


# --- scheduling ---


def test_settings_for_the_placement_of_ranks():
    experiment = training(
        spread=True,
        together="topology.kubernetes.io/zone",
        topology_spread=[{"key": "rack"}],
        priority_class="high",
    )
    first, second = rendered(experiment, "Pod")
    assert first["spec"]["priorityClassName"] == "high"
    selector = {"symphony/experiment": "e", "symphony/copies": "train"}
    for body in (first, second):
        assert selector.items() <= body["metadata"]["labels"].items()
    terms = {"labelSelector": {"matchLabels": selector}}
    affinity = first["spec"]["affinity"]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    assert affinity["podAntiAffinity"] == {
        key: [{**terms, "topologyKey": "kubernetes.io/hostname"}]
    }
    assert affinity["podAffinity"] == {
        key: [{**terms, "topologyKey": "topology.kubernetes.io/zone"}]
    }
    assert first["spec"]["topologySpreadConstraints"] == [
        {**terms, "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    ]


def test_replicas_are_spread_by_their_common_name():
    server = {"replicas": 2, "container_image": "i", "command": "c", "spread": True}
    experiment = Experiment.load_dict({"name": "e", "processes": {"a": server, "b": server}})
    found = [pod["metadata"]["labels"]["symphony/copies"] for pod in rendered(experiment, "Pod")]
    assert found == ["a", "a", "b", "b"]


def test_the_common_name_of_replicas_is_a_valid_label():
    process = {"container_image": "i", "command": "c", "spread": True}
    (pod,) = rendered(Experiment.load_dict({"name": "e", "processes": {"a--0": process}}), "Pod")
    assert pod["metadata"]["labels"]["symphony/copies"] == "a"


def test_spread_and_together_contradict_each_other():
    with pytest.raises(SpecError, match="has both spread and together for kubernetes.io/hostname"):
        rendered(training(spread=True, together=True), "Pod")


def test_ranks_wait_for_their_queue_as_one_group():
    pods = rendered(training(queue="team-a"), "Pod", namespace="team")
    for body in pods:
        assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert body["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "e-train"
        count = body["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
        assert count == "2"
        assert body["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    again = next_attempt(pods[1], Attempt(number=2))
    assert again["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "e-train--2"


def test_a_job_waits_for_its_queue():
    process = {"container_image": "i", "command": "c", "job": True, "queue": "team-a"}
    experiment = Experiment.load_dict({"name": "e", "processes": {"p": process}})
    (job,) = rendered(experiment, "Job")
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert "kueue.x-k8s.io/queue-name" not in job["spec"]["template"]["metadata"]["labels"]
    status = experiment_of_job(
        {**job, "metadata": {**job["metadata"], "creationTimestamp": STARTED}}
    )
    assert status.processes[0].reason == "waiting for quota in queue team-a"


def experiment_of_job(job):
    observer = ExperimentState("e")
    observer.replace(JOBS, [job])
    return observer.observe(NOW).status


def test_a_pod_that_waits_for_its_queue():
    body = waiting(0)
    body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-a"
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    body["status"] = {"phase": "Pending", "conditions": [gated]}
    (process,) = observe(body).status
    assert process.reason == "waiting for quota in queue team-a"
    assert process.reason_code is ReasonCode.SCHEDULING
