"""The supervisor: its decisions, and its work on a real cluster."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import symphony
import symphony_kube
from symphony.plan.policies import Policies
from symphony.status import ReasonCode, State
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle.supervisor import in_cluster
from symphony_kube.lifecycle.supervisor.detached import SupervisorDirectory, directory_of
from symphony_kube.lifecycle.supervisor.in_cluster import SecretStore
from symphony_kube.lifecycle.supervisor.loop import supervise
from symphony_kube.lifecycle.supervisor.supervisor_record import (
    Record,
    Round,
    decode_record,
    encode_record,
)
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.ending import StoppedProcesses, decode_ending, encode_ending
from symphony_kube.record.stored_record import read_stored_record
from symphony_kube.render.pod_parts.deadline import with_deadline
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import Control
from symphony_kube.state.ending import apply_ending, processes_to_stop
from symphony_kube.state.observe import ExperimentState
from symphony_kube.state.observed_objects import PODS
from symphony_kube.state.pod_status import ContainerStatus
from tests.backends.kube.conftest import (
    FOREVER,
    managed_objects,
    python,
    wait_until,
)
from tests.backends.kube.decisions import actions, created_later, decided
from tests.backends.kube.held import HELD, release
from tests.backends.kube.state.test_control import ENDED, NOW, STARTED, observe, pod

RUNNING = ContainerStatus(state=State.RUNNING, started=1.0)
SUCCEEDED = ContainerStatus(state=State.SUCCEEDED, started=1.0, ended=2.0)
FAILED = ContainerStatus(state=State.FAILED, started=1.0, ended=2.0)
PENDING = ContainerStatus()
ROSTER = (
    Unit(name="a", processes=("a",)),
    Unit(name="b", processes=("b",), starts_after={"a": "succeeded"}),
    Unit(name="c", processes=("c",), starts_after={"b": "started"}),
)


def exits(code):
    return {"terminated": {"exitCode": code, "startedAt": STARTED, "finishedAt": ENDED}}


# The state and the phase of a Pod, by the word that the tests use.
PODS_BY_WORD = {
    "running": ({"running": {"startedAt": STARTED}}, "Running"),
    "creating": ({"waiting": {"reason": "ContainerCreating"}}, "Pending"),
    "succeeded": (exits(0), "Succeeded"),
    "failed": (exits(3), "Failed"),
}


def observed(roster=ROSTER, **words):
    """Return the observation of units that exist in the states ``words``."""
    pods = []
    for name, word in words.items():
        state, phase = PODS_BY_WORD[word]
        pods.append(pod(name, state, phase=phase))
    return observe(*pods, roster=roster)


@pytest.mark.parametrize(
    ("words", "expected", "later"),
    [
        ({}, ["start a"], "abc"),
        ({"a": "running"}, [], "bc"),
        ({"a": "succeeded"}, ["start b (after a has succeeded)"], "bc"),
        ({"a": "failed"}, ["finish"], ""),
        ({"a": "succeeded", "b": "creating"}, [], "c"),
        ({"a": "succeeded", "b": "running"}, ["start c (after b has started)"], "c"),
        ({"a": "succeeded", "b": "running", "c": "running"}, [], ""),
    ],
)
def test_start_order(words, expected, later):
    observation = observed(**words)
    assert actions(ROSTER, observation) == expected
    assert created_later(ROSTER, observation) == list(later)


def test_units_whose_pods_a_user_has_deleted_are_not_created_again():
    roster = (Unit(name="a", processes=("a",)), Unit(name="b", processes=("b",)))
    record = Record(created=frozenset("ab"))
    observer = ExperimentState("e", roster=roster)
    observer.created = record.created
    observer.replace(PODS, [pod("a", {"running": {"startedAt": STARTED}})])
    assert actions(roster, observer.observe(NOW), record=record) == []
    assert created_later(roster, observer.observe(NOW), record=record) == []


def test_a_supervisor_waits_for_the_units_that_the_launcher_creates():
    observation = observed()
    assert actions(ROSTER, observation, creatable="bc") == []


STOPPED = {"reason": "the experiment ended with a", "code": "experiment-ended", "failed": False}
LATE = {"reason": "deadline exceeded", "code": "deadline-exceeded", "failed": True}


@pytest.mark.parametrize(
    ("policies", "words", "expected"),
    [
        (
            Policies(ends_with=("a",)),
            {"a": "succeeded", "b": "running"},
            ["stop b: the experiment ended with a"],
        ),
        (Policies(deadline=5), {"a": "running"}, ["stop a: deadline exceeded"]),
        (
            Policies(on_failure="stop"),
            {"a": "failed", "b": "running", "c": "creating"},
            ["stop c: the experiment failed: a failed (exit code 3)"],
        ),
    ],
)
def test_end_of_an_experiment(policies, words, expected):
    decision = decided(ROSTER, observed(**words), policies=policies, launched=NOW - 6)
    assert [str(action) for action in decision.actions] == expected
    assert decision.events[0]["event"] == "ending"


@pytest.mark.parametrize("fields", [STOPPED, LATE])
def test_an_end_in_progress_stops_the_waves_one_after_another(fields):
    ending = StoppedProcesses(processes=tuple("abc"), time=NOW, **fields)
    assert decode_ending(encode_ending(ending)) == ending
    record = Record(ending=ending)
    both = observed(a="running", b="running")
    assert actions(ROSTER, both, record=record) == [f"stop b: {fields['reason']}"]
    stopping = Control(stop=NOW)
    first = pod("a", {"running": {"startedAt": STARTED}})
    waits = observe(
        first, pod("b", {"running": {"startedAt": STARTED}}, control=stopping), roster=ROSTER
    )
    assert actions(ROSTER, waits, record=record) == []
    # The end cancels the restart of a process.
    restarts = replace(stopping, start=NOW)
    cancelled = observe(first, pod("b", exits(143), control=restarts, phase="Failed"))
    assert actions(ROSTER[:2], cancelled, record=record) == [f"stop a: {fields['reason']}"]
    ended = observed(a="failed", b="failed")
    assert actions(ROSTER, ended, record=record) == ["finish"]


def test_process_starts_when_one_that_was_not_ready_in_time_is_ready():
    roster = (
        Unit(name="a", processes=("a",), ready={"a": 5.0}, logs={"a": "up"}),
        Unit(name="b", processes=("b",), starts_after={"a": "ready"}),
    )
    late = observed(roster, a="running")
    assert late.containers["a"].never_ready
    assert actions(roster, late) == []
    assert created_later(roster, late) == ["b"]
    ready = replace(late.containers["a"], ready=True, was_ready=True)
    observation = replace(late, containers={**late.containers, "a": ready})
    assert actions(roster, observation) == ["start b (after a is ready)"]
    failed = observed(roster, a="failed")
    assert created_later(roster, failed) == []


def test_experiment_with_policies_is_supervised_until_it_has_finished():
    policies = Policies(on_failure="stop", deadline=60)
    running = observed(a="succeeded", b="succeeded", c="running")
    decision = decided(ROSTER, running, policies=policies, launched=NOW - 6)
    assert (decision.actions, decision.wake_at) == ((), NOW + 54.0)
    finished = observed(a="succeeded", b="succeeded", c="succeeded")
    assert actions(ROSTER, finished, policies=policies, launched=NOW - 6) == ["finish"]


def test_states_of_stopped_processes():
    ending = StoppedProcesses(processes=tuple("abcdx"), time=16.0, **STOPPED)
    containers = {"a": RUNNING, "b": PENDING, "c": PENDING, "d": SUCCEEDED, "e": FAILED}
    found = apply_ending(ending, containers, on_nodes="ab")
    assert {name: (item.state, item.stopped) for name, item in found.items()} == {
        "a": (State.RUNNING, False),
        "b": (State.PENDING, False),
        "c": (State.FAILED, True),
        "d": (State.SUCCEEDED, True),
        "e": (State.FAILED, False),
    }
    assert {found[name].reason for name in "abcd"} == {STOPPED["reason"]}
    late = apply_ending(replace(ending, **LATE), containers, on_nodes="")
    assert (late["d"].state, late["d"].stopped) == (State.FAILED, False)


def test_a_process_that_has_exited_is_not_stopped_although_its_pod_has_not_finished():
    """The Pod finishes more than a second after the process."""
    exited = {"terminated": {"exitCode": 0, "startedAt": STARTED, "finishedAt": ENDED}}
    body = pod("a", exited, phase="Running")
    body["spec"]["restartPolicy"] = "Never"
    running = pod("b", {"running": {"startedAt": STARTED}})
    status = observe(body, running, roster=ROSTER).status
    assert status.processes[0].reason == "exited with 0; its Pod has not finished yet"
    assert processes_to_stop(status) == ["b", "c"]


@pytest.mark.parametrize(
    ("kind", "backoff_limit", "before", "pod", "job"),
    [
        ("Pod", None, None, 60, None),
        ("Pod", None, 7, 7, None),
        ("Pod", None, 70, 60, None),
        ("Job", 0, None, 60, None),
        ("Job", 3, None, 60, 60),
    ],
)
def test_active_deadlines(kind, backoff_limit, before, pod, job):
    spec = {} if before is None else {"activeDeadlineSeconds": before}
    body = {"kind": kind, "metadata": {}, "spec": spec}
    if kind == "Job":
        template = {"metadata": {}, "spec": {}}
        body["spec"] = {"backoffLimit": backoff_limit, "template": template}
    limited = with_deadline(body, 59.5)
    limits = limited["spec"]
    pod_spec = limits["template"]["spec"] if kind == "Job" else limits
    assert pod_spec["activeDeadlineSeconds"] == pod
    if kind == "Job":
        assert limits.get("activeDeadlineSeconds") == job
    assert with_deadline(body, None) == body


EXITS_WITH_0 = {"terminated": {"exitCode": 0, "startedAt": STARTED, "finishedAt": ENDED}}


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.0])
def test_a_pod_with_a_short_deadline_does_not_count_as_stopped_by_a_user(seconds):
    """A process that exits with 0 at the deadline has failed."""
    body = {"kind": "Pod", **pod("a", EXITS_WITH_0, phase="Failed")}
    limited = with_deadline(body, seconds)
    limited["status"] |= {"reason": "DeadlineExceeded", "startTime": STARTED}
    (process,) = observe(limited).status
    assert (process.state, process.reason_code) == (State.FAILED, ReasonCode.DEADLINE_EXCEEDED)


def test_record_can_be_decoded():
    problem = Problem(text="exceeded quota", time=1.5, permanent=False)
    ending = StoppedProcesses(processes=("a",), time=16.0, **LATE)
    restarted = Round(number=2, start=15.0, in_row=1, reason="a failed")
    record = Record(
        created=frozenset({"a", "b"}), problems={"c": problem}, ending=ending, round=restarted
    )
    assert decode_record(encode_record(record)) == record
    assert decode_record("") == Record()


def test_supervisor_adds_no_files_to_a_directory_that_is_being_removed(tmp_path, monkeypatch):
    directory = SupervisorDirectory(tmp_path / "exp")
    directory.path.mkdir()
    (directory.path / "run").touch()
    remove = os.rmdir

    def start_and_remove(*args, **options):
        # A supervisor that another command has started locks the directory first.
        with directory.locked(pid=1):
            remove(*args, **options)

    monkeypatch.setattr(os, "rmdir", start_and_remove)
    directory.remove()
    assert list(tmp_path.iterdir()) == []


def test_supervisor_tries_again_after_an_exceeded_quota(kube_cluster, shared, name):
    kube_cluster.quota("one", {"pods": "1"})
    exp = shared.new_experiment(name)
    python(exp, "first", HELD)
    python(exp, "second", "pass").starts_after("first", "started")
    shared.launch(exp)
    second = wait_until(lambda: find_reason(shared, name, "second", "cannot create pod"))
    assert (second.state, second.reason_code) == (State.PENDING, ReasonCode.NOT_PERMITTED)
    assert "exceeded quota: one" in second.reason
    release(shared, name, "first")
    assert [item.state for item in shared.wait(name, timeout=90)] == [State.SUCCEEDED] * 2
    shared.delete(name)


def find_reason(cluster, name, process, reason):
    status = cluster.describe_process(name, process)
    return status if status.reason.startswith(reason) else None


# --- in the cluster ---


@pytest.fixture
def supervisor_in_pod(kube_cluster, monkeypatch):
    """Options for a cluster whose supervisors run this checkout in Pods.

    The nodes of the devcluster see the files of this machine, and the image contains the packages
    that the kube backend needs.
    """
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("the nodes must see the files of the checkout")
    checkouts = {Path(package.__file__).parents[1] for package in (symphony, symphony_kube)}
    paths = [str(path) for path in checkouts]
    render_job = in_cluster.render_job

    def with_code(*arguments):
        body = json.loads(json.dumps(render_job(*arguments)))
        spec = body["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container["env"] = [{"name": "PYTHONPATH", "value": ":".join(paths)}]
        container["volumeMounts"] = []
        spec["volumes"] = []
        for index, path in enumerate(paths):
            spec["volumes"].append({"name": f"code-{index}", "hostPath": {"path": path}})
            container["volumeMounts"].append(
                {"name": f"code-{index}", "mountPath": path, "readOnly": True}
            )
        return body

    monkeypatch.setattr(in_cluster, "render_job", with_code)
    return {"supervisor_image": kube_cluster.image}


def objects_of_supervisor(kube, name):
    """Return the names of the supervisor's objects by kind, except for the Secret."""
    kinds = {
        "api/v1": ["pods", "serviceaccounts"],
        "apis/batch/v1": ["jobs"],
        "apis/rbac.authorization.k8s.io/v1": ["roles", "rolebindings"],
    }
    found = {}
    for group, plurals in kinds.items():
        for plural in plurals:
            items = kube.raw.call("GET", kube.path(plural, group=group))["items"]
            names = [item["metadata"]["name"] for item in items]
            found[plural] = [each for each in names if each.startswith(f"{name}-symphony")]
    return {plural: names for plural, names in found.items() if names}


@pytest.mark.timeout(300)  # The Pods of the supervisor start slowly on a busy machine.
def test_supervisor_in_the_cluster(kube_cluster, open_cluster, supervisor_in_pod, name):
    """The launcher does nothing more. The supervisor continues the start order, restarts the
    experiment after a failure, and ends it after the next one. In the meantime, the supervisor's
    Pod is deleted, and two supervisors work at the same time.
    """
    cluster = open_cluster(namespace=kube_cluster.namespace, **supervisor_in_pod)
    exp = cluster.new_experiment(name, on_failure={"policy": "restart", "max_restarts": 1})
    python(exp, "agent", f"print('up'); {FOREVER}")
    python(exp, "first", HELD)
    python(exp, "learner", "raise SystemExit(3)").starts_after("first", "succeeded")
    python(exp, "never", "pass").starts_after("agent", "succeeded")
    manifest = cluster.launch(exp)
    (pod,) = objects_of_supervisor(kube_cluster, name)["pods"]
    assert manifest.notes == (f"the experiment is supervised by pod '{pod}'",)
    assert not directory_of(KubeExperiment(cluster.api, cluster.scope(name))).exists
    kube_cluster.raw.call("DELETE", kube_cluster.path(f"pods/{pod}"), {"gracePeriodSeconds": 0})
    wait_until_running(cluster, name, "first")
    release(cluster, name, "first")
    # The failure of the learner restarts the experiment. A new Pod of the supervisor comes first.
    wait_until(lambda: cluster.describe_process(name, "first").restarts, seconds=120)
    wait_until_running(cluster, name, "first")

    store = SecretStore(cluster.api, kube_cluster.namespace, f"{name}-symphony-supervisor")
    run, owner = store.load()
    errors = []
    second = threading.Thread(
        target=supervise,
        args=(cluster.api, run, store),
        kwargs={"owner": owner, "on_error": errors.append},
    )
    second.start()
    release(cluster, name, "first")
    status = cluster.wait(name, timeout=90)
    second.join(30)
    assert errors == []
    assert not second.is_alive()
    assert [(item.displayed_state, item.restarts) for item in status] == [
        ("stopped", 1),
        ("succeeded", 1),
        ("failed", 1),
        ("stopped", 0),
    ]
    assert status.exit_code == 3
    assert "the limit is 1" in status.processes[0].reason
    assert cluster.get_log(name, "agent") == "up\nup\n"
    cluster.delete(name)
    assert managed_objects(kube_cluster) == {}
    assert objects_of_supervisor(kube_cluster, name) == {}


def wait_until_running(cluster, name, process):
    wait_until(lambda: cluster.describe_process(name, process).state is State.RUNNING)


@pytest.mark.long
@pytest.mark.timeout(300)  # The Pods of the supervisor start slowly on a busy machine.
def test_supervisor_in_the_cluster_takes_over_changed_policies(
    kube_cluster, open_cluster, supervisor_in_pod, name, monkeypatch
):
    """A supervisor that has finished is started again, a running one reads the new description, and
    one that does not react is replaced.
    """
    cluster = open_cluster(namespace=kube_cluster.namespace, **supervisor_in_pod)

    def describe(**policies):
        exp = cluster.new_experiment(name, **policies)
        python(exp, "server", FOREVER)
        python(exp, "worker", HELD)
        python(exp, "later", FOREVER).starts_after("server", "started")
        return exp

    def supervisor_pods():
        return objects_of_supervisor(kube_cluster, name).get("pods")

    cluster.launch(describe())
    job = kube_cluster.path(f"jobs/{name}-symphony-supervisor", group="apis/batch/v1")
    wait_until(lambda: kube_cluster.raw.call("GET", job)["status"].get("succeeded"), seconds=120)
    first = supervisor_pods()
    cluster.up(describe(ends_with=["server"], deadline=1000))
    second = supervisor_pods()
    assert second != first
    monkeypatch.setattr(in_cluster, "ACKNOWLEDGE_SECONDS", 90)
    cluster.up(describe(ends_with=["server"], deadline=2000, record_usage=True))
    assert supervisor_pods() == second
    log = kube_cluster.path(f"pods/{second[0]}/log")
    wait_until(lambda: b"the cluster serves no metrics" in read_all(cluster.api, log))
    acknowledges, calls = in_cluster._acknowledges, []

    def acknowledges_too_late(*args):
        calls.append(args)
        return len(calls) > 1 and acknowledges(*args)

    monkeypatch.setattr(in_cluster, "_acknowledges", acknowledges_too_late)
    cluster.up(describe(ends_with=["worker"], deadline=3000))
    wait_until(lambda: supervisor_pods() and supervisor_pods() != second, seconds=120)
    assert cluster.diff(describe(ends_with=["worker"], deadline=3000)).is_empty
    release(cluster, name, "worker")
    status = cluster.wait(name, timeout=120)
    assert [process.displayed_state for process in status] == ["stopped", "succeeded", "stopped"]
    # The supervisor may write the record with its own rights.
    stored = read_stored_record(KubeExperiment(cluster.api, cluster.scope(name)))
    assert decode_ending(stored.record.ending).reason == "the experiment ended with worker"
    cluster.delete(name)


def read_all(api, path):
    return b"".join(api.open_stream(path).chunks())
