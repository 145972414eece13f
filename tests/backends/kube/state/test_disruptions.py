"""Disruptions on Kubernetes: how they are recognized, what the supervisor does, and the rules of
Jobs."""

import itertools
from dataclasses import replace

import pytest

from symphony import Experiment
from symphony.events import events_between
from symphony.plan.disruption import DisruptionCause
from symphony.status import ReasonCode, State
from symphony_kube.api.resources import parse_time
from symphony_kube.lifecycle.supervisor.facts import find_ended
from symphony_kube.lifecycle.supervisor.new_attempts import attempt_of_new, find_losses
from symphony_kube.lifecycle.supervisor.supervisor_record import (
    Record,
    decode_record,
    encode_record,
)
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import record_of_problems
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import Attempt, Control
from symphony_kube.state.job_status import parse_job
from symphony_kube.state.observe import ExperimentState
from symphony_kube.state.observed_attempt import OVERDUE_SECONDS
from symphony_kube.state.observed_objects import JOBS, PODS
from symphony_kube.state.pod_parser import parse_pod
from tests.backends.kube.decisions import actions, decided, started
from tests.backends.kube.histories import read_history
from tests.backends.kube.render.test_render import rendered
from tests.backends.kube.state.test_control import ENDED, EXITED, NOW, RUNNING, STARTED, STOP, pod

DISRUPTED = "2023-11-14T22:14:00Z"
PENDING = (State.PENDING, ReasonCode.DISRUPTED)
# A program that handles TERM chooses its exit code.
SAVED = {"terminated": {"exitCode": 1, "startedAt": STARTED, "finishedAt": ENDED}}
SUCCEEDED = {"terminated": {"exitCode": 0, "startedAt": STARTED, "finishedAt": ENDED}}


def disrupted(body, reason, message="", *, deleted=True):
    """Return a Pod with the condition of a disruption."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": DISRUPTED,
    }
    metadata = dict(body["metadata"])
    if deleted:
        metadata.update(deletionTimestamp="2023-11-14T22:15:30Z", deletionGracePeriodSeconds=90)
    status = {**body["status"], "conditions": [condition]}
    return {**body, "metadata": metadata, "status": status}


def unit(name="a", policy="Always", **options):
    return Unit(
        name=name, processes=(name,), restart=policy, replaced_if_lost=policy != "Never", **options
    )


def observe_deletion(units, *pods, gone):
    """Return what a supervisor observes after one of its Pods has been deleted."""
    observer = ExperimentState("e", roster=units)
    observer.created = frozenset(item.name for item in units)
    observer.replace(PODS, [*pods, gone])
    observer.apply(PODS, "DELETED", gone)
    return observer.observe(NOW)


def shown(observation, name="a"):
    (process,) = [item for item in observation.status if item.name == name]
    return (process.state, process.reason_code), process.reason, process.restarts


def find_lost(units, observation, **options):
    """Return the units that start again because of a disruption, with the reasons."""
    return find_losses(decided(units, observation, **options), units)


def next_attempt(name, units, observation, **options):
    """Return the attempt with which a unit starts whose Pod is gone."""
    losses = find_lost(units, observation, **options)
    return attempt_of_new(name, units, observation, losses)


# --- what is recognized ---


@pytest.mark.parametrize(
    ("reason", "message", "cause", "text"),
    [
        ("EvictionByEvictionAPI", "Eviction API: evicting", "DRAINED", "n1 was drained"),
        ("PreemptionByScheduler", "default-scheduler: ...", "PREEMPTED", "preempted on n1"),
        (
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            "EVICTED",
            "evicted from n1 (the node has a NoExecute taint)",
        ),
        (
            "TerminationByKubelet",
            "The node was low on resource: memory. ",
            "EVICTED",
            "evicted from n1 (The node was low on resource: memory)",
        ),
        ("DeletionByPodGC", "PodGC: node no longer exists", "NODE_LOST", "n1 was lost"),
        ("SomethingElse", "", "EVICTED", "evicted from n1 (SomethingElse)"),
    ],
)
def test_reasons_of_the_condition(reason, message, cause, text):
    found = parse_pod(disrupted(pod("a", RUNNING), reason, message)).disruption
    assert (found.cause, str(found)) == (DisruptionCause[cause], text)


def test_pods_without_the_condition():
    body = pod("a", RUNNING)
    assert parse_pod(body).disruption is None
    body["status"].update(phase="Failed", reason="Evicted", message="The node was low on disk.")
    assert str(parse_pod(body).disruption) == "evicted from n1 (The node was low on disk)"
    deleted = pod("a", RUNNING)
    deleted["metadata"]["deletionTimestamp"] = "2023-11-14T22:15:30Z"
    assert str(parse_pod(deleted).disruption) == "its Pod was deleted"
    # The node controller has marked the Pods of a node that does not respond.
    deleted["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "True"},
    ]
    assert str(parse_pod(deleted).disruption) == "n1 was lost"


@pytest.mark.parametrize(
    ("history", "process", "reason"),
    [
        ("15-eviction", "polite", "lost: {node} was drained"),
        ("15-eviction", "stubborn", "lost: {node} was drained"),
        ("04-delete-ignores-term", "waits", "lost: its Pod was deleted"),
        ("04-delete-ignores-term", "polite", "lost: its Pod was deleted"),
        ("05-delete-while-pending", "unscheduled", "lost: its Pod was deleted"),
        ("10-restarts-on-failure", "p", "lost: its Pod was deleted"),
    ],
)
def test_recorded_disruptions(history, process, reason):
    """A process is started again only when its Pod is gone, also after an exit code of 0."""
    recorded = read_history(history)
    units = tuple(
        replace(item, restart="Always", replaced_if_lost=True) for item in recorded.roster
    )
    observer = ExperimentState("e", roster=units)
    nodes = {}
    for change in recorded.changes:
        observer.apply(change.kind, change.event, change.body)
        metadata = change.body["metadata"]
        nodes[metadata["name"]] = change.body["spec"].get("nodeName", "")
        found = find_lost(units, observer.observe(change.at), now=change.at)
        assert change.event == "DELETED" or metadata["name"] not in found
    observation = observer.observe(recorded.end)
    states, text, restarts = shown(observation, process)
    assert (states, text) == (PENDING, reason.format(node=nodes[process]))
    assert process in started(units, observation, now=recorded.end)
    attempt = next_attempt(process, units, observation, now=recorded.end)
    assert (attempt.number, attempt.restarts, attempt.lost) == (2, restarts, text)


# --- what the supervisor does ---


def test_a_lost_process_is_started_again():
    units = (unit("a"), unit("b"))
    gone = disrupted(pod("a", RUNNING, attempt=3), "EvictionByEvictionAPI")
    observation = observe_deletion(units, pod("b", RUNNING), gone=gone)
    # It was restarted twice before.
    assert shown(observation) == (PENDING, "lost: n1 was drained", 2)
    assert actions(units, observation) == ["start a (again: lost: n1 was drained)"]
    attempt = next_attempt("a", units, observation)
    assert attempt == Attempt(number=4, restarts=2, lost="lost: n1 was drained")


def test_problem_in_an_object_of_an_earlier_attempt_is_out_of_date():
    """The supervisor has created `b` since then, and its node is drained."""
    units = (unit("a"), unit("b"))
    problem = record_of_problems({"b": Problem(text="exceeded quota", time=NOW)})
    first, second = pod("a", EXITED, phase="Failed"), pod("a", RUNNING, attempt=2)
    first["metadata"]["annotations"].update(problem.annotations())
    second["metadata"]["annotations"].update(record_of_problems({}).annotations())
    gone = disrupted(pod("b", RUNNING), "EvictionByEvictionAPI")
    found = {}
    for name, pods in {"before": [first], "after": [first, second]}.items():
        found[name] = shown(observe_deletion(units, *pods, gone=gone), "b")[1]
    assert found == {"before": "exceeded quota", "after": "lost: n1 was drained"}


def test_a_process_that_was_started_again_says_so():
    body = pod("a", RUNNING, node="n3")
    body["metadata"]["annotations"]["symphony/attempt"] = (
        '{"number":2,"lost":"lost: n1 was drained"}'
    )
    observer = ExperimentState("e", roster=(unit(),))
    observer.replace(PODS, [body])
    expected = "lost: n1 was drained; started again on n3"
    assert shown(observer.observe(NOW)) == ((State.RUNNING, ReasonCode.DISRUPTED), expected, 0)
    waiting = {**body, "spec": {**body["spec"], "nodeName": ""}, "status": {"phase": "Pending"}}
    observer.apply(PODS, "MODIFIED", waiting)
    assert shown(observer.observe(NOW)) == (PENDING, "lost: n1 was drained", 0)


def test_events_of_a_disruption():
    observer = ExperimentState("e", roster=(unit("a"), unit("b")))
    observer.replace(PODS, [pod("a", RUNNING), pod("b", RUNNING)])
    statuses = [observer.observe(NOW).status]
    evicted = disrupted(pod("a", RUNNING), "EvictionByEvictionAPI")
    again = pod("a", {"running": {"startedAt": ENDED}}, attempt=2, node="n3")
    attempt = '{"number":2,"lost":"lost: n1 was drained"}'
    again["metadata"]["annotations"]["symphony/attempt"] = attempt
    for event, body in (("MODIFIED", evicted), ("DELETED", evicted), ("ADDED", again)):
        observer.apply(PODS, event, body)
        statuses.append(observer.observe(NOW).status)
    found = []
    for before, after in itertools.pairwise(statuses):
        found += [(str(item.kind), item.text) for item in events_between(before, after, NOW)]
    assert found == [
        ("stopping", "stopping"),
        ("restarting", "lost: n1 was drained"),
        ("started", "lost: n1 was drained; started again on n3"),
    ]


@pytest.mark.parametrize(
    ("policy", "state", "control"),
    [
        ("Never", RUNNING, None),
        ("OnFailure", SUCCEEDED, None),
        # A user has stopped it.
        ("Always", RUNNING, Control(stop=STOP)),
    ],
)
def test_processes_that_are_not_started_again(policy, state, control):
    units = (unit(policy=policy), unit("b"))
    gone = pod("a", state, control=control, phase="Succeeded" if state is SUCCEEDED else "Running")
    observation = observe_deletion(units, pod("b", RUNNING), gone=gone)
    assert find_lost(units, observation) == {}
    assert started(units, observation) == []


@pytest.mark.parametrize("exit_state", [EXITED, SUCCEEDED, RUNNING, SAVED])
def test_a_pod_that_remains_after_an_eviction(exit_state):
    """The request for the next attempt is recorded in the Pod, whatever the exit code is."""
    body = pod("a", exit_state, phase="Failed")
    body["status"].update(reason="Evicted", message="The node was low on resource: memory.")
    evicted = disrupted(body, "TerminationByKubelet", "The node was low on it.", deleted=False)
    observer = ExperimentState("e", roster=(unit(),))
    observer.replace(PODS, [evicted])
    later = NOW + 1000  # Old versions report the exit of a running process late.
    observation = observer.observe(later)
    reason = "lost: evicted from n1 (The node was low on it)"
    assert shown(observation) == (PENDING, reason, 0)
    assert actions((unit(),), observation, now=later) == [f"start a (again: {reason})"]
    assert find_lost((unit(),), observation, now=later) == {"a": reason}
    control = Control(start=later, reason=reason, code="disrupted")
    requested = disrupted(
        pod("a", EXITED, phase="Failed", control=control), "TerminationByKubelet", deleted=False
    )
    observer.replace(PODS, [requested])
    observation = observer.observe(later)
    assert shown(observation) == (PENDING, reason, 0)
    assert observation.unit_statuses["a"].waits_for_start
    # The number of restarts of the next attempt.
    assert observation.unit_statuses["a"].restarts == 0


def test_the_pod_of_a_rank_that_remains_after_an_eviction():
    units = tuple(unit(f"u-{rank}", rank_of="u") for rank in range(2))
    evicted = disrupted(pod("u-1", EXITED, phase="Failed"), "TerminationByKubelet", deleted=False)
    observer = ExperimentState("e", roster=units)
    observer.replace(PODS, [pod("u-0", RUNNING), evicted])
    reason = "lost: u-1 (evicted from n1 (TerminationByKubelet))"
    decision = decided(units, observer.observe(NOW))
    assert [str(action) for action in decision.actions] == [f"stop u-0: {reason}"]
    assert decision.units["u"].reason == reason
    assert decision.units["u"].reason_code is ReasonCode.DISRUPTED


def test_a_node_that_is_lost():
    """Its Pods remain, so the next attempt begins when they should have ended long ago."""
    body = disrupted(pod("a", RUNNING), "DeletionByTaintManager")
    body["status"]["conditions"] += [
        {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "True"},
    ]
    observer = ExperimentState("e", roster=(unit(),))
    observer.replace(PODS, [body])
    deadline = parse_time(body["metadata"]["deletionTimestamp"])
    soon = observer.observe(deadline + OVERDUE_SECONDS - 1)
    assert shown(soon)[0] == (State.RUNNING, ReasonCode.DELETING)
    assert find_lost((unit(),), soon, now=deadline) == {}
    late = observer.observe(deadline + OVERDUE_SECONDS)
    assert shown(late) == (PENDING, "lost: n1 was lost", 0)
    assert find_lost((unit(),), late, now=deadline) == {"a": "lost: n1 was lost"}


def test_an_exit_before_the_eviction_is_a_failure():
    exited = {"terminated": {"exitCode": 3, "startedAt": STARTED, "finishedAt": STARTED}}
    body = disrupted(pod("a", exited, phase="Failed"), "TerminationByKubelet", deleted=False)
    observer = ExperimentState("e", roster=(unit(policy="OnFailure"),))
    observer.replace(PODS, [body])
    assert shown(observer.observe(NOW))[0] == (State.FAILED, ReasonCode.EXITED)


def test_a_lost_process_waits_for_those_that_it_starts_after():
    units = (unit("a"), unit("b", starts_after={"a": "started"}))
    both = [disrupted(pod(name, RUNNING), "EvictionByEvictionAPI") for name in ("a", "b")]
    observer = ExperimentState("e", roster=units)
    observer.replace(PODS, both)
    for body in both:
        observer.apply(PODS, "DELETED", body)
    assert started(units, observer.observe(NOW)) == ["a"]
    observer.apply(PODS, "ADDED", pod("a", RUNNING, attempt=2))
    assert started(units, observer.observe(NOW)) == ["b"]


def test_all_ranks_of_a_unit_were_lost():
    units = tuple(unit(f"u-{rank}", rank_of="u") for rank in range(2))
    observer = ExperimentState("e", roster=units)
    pods = [disrupted(pod(item.name, RUNNING), "EvictionByEvictionAPI") for item in units]
    observer.replace(PODS, pods)
    for body in pods:
        observer.apply(PODS, "DELETED", body)
    observation = observer.observe(NOW)
    assert started(units, observation) == ["u-0", "u-1"]
    attempts = {next_attempt(item.name, units, observation) for item in units}
    assert attempts == {Attempt(number=2, lost="lost: u-0 (n1 was drained)")}


def test_pods_that_were_deleted_while_no_supervisor_observed_them():
    units = (unit("a"), unit("b", "OnFailure"), unit("c", "Never"))
    observer = ExperimentState("e", roster=units)
    record = Record(created=frozenset("abc"), ended=frozenset("b"))
    observer.created, observer.ended = record.created, record.ended
    observation = observer.observe(NOW)
    assert started(units, observation, record=record) == ["a"]
    assert shown(observation) == (PENDING, "lost: its Pod was deleted", 0)
    attempt = next_attempt("a", units, observation, record=record)
    assert attempt == Attempt(lost="lost: its Pod was deleted")


def test_the_record_contains_the_units_that_have_ended():
    units = (unit("a"), unit("b", "OnFailure"), unit("c", "Never"))
    observer = ExperimentState("e", roster=units)
    ended = [pod(name, SUCCEEDED, phase="Succeeded") for name in ("b", "c")]
    observer.replace(PODS, [pod("a", RUNNING), *ended])
    statuses = observer.observe(NOW).unit_statuses
    assert find_ended(units, statuses) == ({"b"}, {"a"})
    record = Record(created=frozenset("ab"), ended=frozenset("b"))
    assert decode_record(encode_record(record)) == record


# --- what is rendered ---


@pytest.mark.parametrize(
    ("policy", "job", "is_replaced", "rules"),
    [
        ("Always", None, True, 0),
        ("OnFailure", None, True, 0),
        ("Never", None, False, 0),
        ({"policy": "OnFailure", "max_restarts": 3}, None, False, 1),
        ("Never", {}, False, 0),
        ("Never", {"backoff_limit": 2}, False, 1),
        # Kubernetes restarts the container, and permits no rules then.
        ("OnFailure", {"backoff_limit": 2}, False, 0),
    ],
)
def test_who_starts_a_process_again(policy, job, is_replaced, rules):
    exp = Experiment("e")
    process = exp.new_process("p", container_image="i")
    process.restart_policy(**policy) if isinstance(policy, dict) else process.restart_policy(policy)
    if job is not None:
        process.job(**job)
    manifest = rendered(exp)
    assert manifest.roster[0].replaced_if_lost is is_replaced
    assert manifest.needs_supervisor is is_replaced
    (body,) = manifest.units
    failure_policy = body["spec"].get("podFailurePolicy", {"rules": []})
    assert len(failure_policy["rules"]) == rules


def test_jobs_only_needs_no_supervisor():
    exp = Experiment("e")
    exp.new_process("p", container_image="i").restart_policy("OnFailure")
    manifest = rendered(exp, options=RenderOptions(jobs_only=True))
    assert not manifest.needs_supervisor


# --- Jobs ---


def test_a_job_ignores_a_disruption():
    exp = Experiment("e")
    exp.new_process("a", container_image="i").job(backoff_limit=2)
    (body,) = rendered(exp).units
    body["metadata"].update(uid="j", creationTimestamp="2023-11-14T22:14:59Z")
    body["status"] = {"active": 1}
    assert parse_job(body).ignores_disruptions
    evicted = disrupted(pod("a", EXITED, phase="Failed"), "TerminationByKubelet", deleted=False)
    evicted["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a"}]
    observer = ExperimentState("e")
    observer.replace(JOBS, [body])
    observer.replace(PODS, [evicted])
    reason = "lost: evicted from n1 (TerminationByKubelet)"
    assert shown(observer.observe(NOW)) == (PENDING, reason, 0)
    observer.apply(PODS, "DELETED", evicted)
    assert shown(observer.observe(NOW)) == (PENDING, reason, 0)
    second = pod("a", RUNNING)
    second["metadata"].update(evicted["metadata"], name="a-2", uid="a-2")
    observer.apply(PODS, "ADDED", second)
    assert shown(observer.observe(NOW)) == ((State.RUNNING, None), "", 0)
