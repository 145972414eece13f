"""Stopping and starting processes: requests, attempts and states, and a real cluster."""

import math
from dataclasses import replace

import pytest

from symphony.errors import BackendError, SpecError
from symphony.plan.policies import Policies
from symphony.plan.state import Request
from symphony.status import ReasonCode, State
from symphony.testing.contract import all_running, until
from symphony_kube.api.labels import ATTEMPT, CONTROL, MANIFEST
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.requested_steps import RequestedSteps, stopped_now
from symphony_kube.lifecycle.supervisor.supervisor_record import Record, Round
from symphony_kube.render.container_scripts import STOPPED_MESSAGE, stop_command
from symphony_kube.render.roster import Unit
from symphony_kube.state.control_state import (
    Attempt,
    Control,
    decode_attempt,
    decode_control,
    decode_manifest,
    encode,
)
from symphony_kube.state.observe import ExperimentState
from symphony_kube.state.observed_objects import PODS
from tests.backends.kube.conftest import FOREVER, python, unschedulable, wait_until
from tests.backends.kube.decisions import actions, decided, find_startable

NOW = 1_700_000_100.0
STARTED, ENDED = "2023-11-14T22:13:20Z", "2023-11-14T22:14:10Z"
STOP = 1_700_000_040.0
RUNNING = {"running": {"startedAt": STARTED}}
EXITED = {"terminated": {"exitCode": 143, "startedAt": STARTED, "finishedAt": ENDED}}


def pod(name, state, *, control=None, attempt=1, phase="Running", node="n1", restarts=0, retries=0):
    """Return the Pod of an attempt to run the process ``name``."""
    number = Attempt(number=attempt, restarts=attempt - 1, retries=retries, in_row=retries)
    annotations = {MANIFEST: "x", ATTEMPT: encode(number)}
    if control is not None:
        annotations[CONTROL] = encode(control)
    status = {"name": name, "state": state, "restartCount": restarts}
    return {
        "metadata": {
            "name": name if attempt == 1 else f"{name}--{attempt}",
            "uid": f"{name}-{attempt}",
            "labels": {"symphony/unit": name},
            "annotations": annotations,
            "creationTimestamp": STARTED,
        },
        "spec": {
            "containers": [{"name": name}],
            "nodeName": node,
            "terminationGracePeriodSeconds": 90,
        },
        "status": {"phase": phase, "containerStatuses": [status]},
    }


def observe(*pods, roster=None, now=NOW):
    observer = ExperimentState("e", roster=roster)
    observer.replace(PODS, pods)
    return observer.observe(now)


STOPPING = Control(stop=STOP)
RESTARTING = Control(stop=STOP, start=STOP)
INTERRUPTED = {"command": "restart", "others": "b:1"}


@pytest.mark.parametrize(
    ("state", "phase", "node", "control", "shown"),
    [
        (RUNNING, "Running", "n1", STOPPING, ("stopping", ReasonCode.STOPPING, STOP + 90)),
        (RUNNING, "Failed", "n1", STOPPING, ("stopping", ReasonCode.STOPPING, STOP + 90)),
        (RUNNING, "Failed", "n1", replace(STOPPING, kill=STOP + 5), ("stopping", None, STOP + 5)),
        (RUNNING, "Failed", "n1", replace(STOPPING, ended=STOP + 1), ("stopped", None, None)),
        (EXITED, "Failed", "n1", STOPPING, ("stopped", ReasonCode.STOPPED, None)),
        # The process exited before the request.
        (EXITED, "Failed", "n1", Control(stop=NOW), ("failed", ReasonCode.KILLED, None)),
        ({}, "Pending", "", STOPPING, ("stopped", None, None)),
        (RUNNING, "Failed", "n1", RESTARTING, ("stopping", None, STOP + 90)),
        (EXITED, "Failed", "n1", RESTARTING, ("pending", ReasonCode.WAITING, None)),
        (EXITED, "Failed", "n1", replace(RESTARTING, replaced=NOW), ("pending", None, None)),
        (EXITED, "Failed", "n1", replace(RESTARTING, replaced=STOP - 60), ("unknown", None, None)),
    ],
)
def test_state_of_a_process_with_requests(state, phase, node, control, shown):
    stopped = pod("a", state, control=control, phase=phase, node=node)
    if phase == "Failed" and control.stop == STOP:
        stopped["status"]["reason"] = "DeadlineExceeded"
        stopped["spec"]["activeDeadlineSeconds"] = 1
        stopped["metadata"]["managedFields"] = [{"time": "2023-11-14T22:14:59Z"}]
    (process,) = observe(stopped).status
    word, code, kill_at = shown
    assert (process.displayed_state, process.kill_at) == (word, kill_at)
    assert code in (None, process.reason_code)


def test_latest_attempt_determines_the_state():
    first = pod("a", EXITED, control=replace(RESTARTING, replaced=NOW), phase="Failed")
    second = pod("a", RUNNING, attempt=2, restarts=3)
    observation = observe(second, first)
    (process,) = observation.status
    assert (process.state, process.restarts) == (State.RUNNING, 4)
    assert observation.unit_statuses["a"].attempt.number == 2


def test_processes_are_started_again_in_their_order():
    roster = (
        Unit(name="a", processes=("a",)),
        Unit(name="b", processes=("b",), starts_after={"a": "started"}),
    )
    waiting = pod("b", EXITED, control=RESTARTING, phase="Failed")
    stopping = pod("a", RUNNING, control=RESTARTING)
    assert find_startable(roster, observe(stopping, waiting, roster=roster)) == []
    stopped = pod("a", EXITED, control=RESTARTING, phase="Failed")
    assert find_startable(roster, observe(stopped, waiting, roster=roster)) == ["a"]
    replaced = pod("a", EXITED, control=replace(RESTARTING, replaced=NOW), phase="Failed")
    assert find_startable(roster, observe(replaced, waiting, roster=roster)) == []
    new = pod("a", RUNNING, attempt=2)
    observation = observe(replaced, new, waiting, roster=roster)
    assert find_startable(roster, observation) == ["b"]


def test_command_that_was_not_recorded_in_all_units():
    roster = (Unit(name="a", processes=("a",)), Unit(name="b", processes=("b",)))
    first = pod("a", EXITED, phase="Failed", control=replace(RESTARTING, **INTERRUPTED))
    observation = observe(first, pod("b", RUNNING), roster=roster)
    assert observation.status.note == (
        "restart was interrupted after 'a' and before b; repeat the command"
    )
    assert find_startable(roster, observation) == []
    for second in (pod("b", RUNNING, control=STOPPING), pod("b", RUNNING, attempt=2)):
        observation = observe(first, second, roster=roster)
        assert observation.status.note == ""
        assert find_startable(roster, observation) == ["a"]


def test_restart_policy_that_the_supervisor_applies():
    policy = {"policy": "OnFailure", "max_restarts": 2, "backoff": 40.0}
    roster = (Unit(name="a", processes=("a",), supervised_restart=policy),)
    decided = []
    for attempt in (1, 2, 3):
        exited = pod("a", EXITED, phase="Failed", attempt=attempt, retries=attempt - 1)
        observation = observe(exited, roster=roster)
        (process,) = observation.status
        retry = observation.unit_statuses["a"].retry
        decided.append((process.displayed_state, process.next_start, retry and retry.in_row))
        requested = Control(start=NOW, code="backing-off", reason="r", in_row=1)
        waiting = pod("a", EXITED, phase="Failed", retries=attempt - 1, control=requested)
        for found in (process, *observe(waiting, roster=roster).status):
            number = attempt if found.next_start else None
            assert (found.restart_number, found.max_restarts) == (number, number and 2)
        is_finished = actions(roster, observation) == ["finish"]
        assert is_finished is (attempt == 3)
    ended = 1_700_000_050.0
    assert decided == [("pending", ended, 1), ("pending", ended + 40, 2), ("failed", None, None)]


def test_an_unhealthy_process_that_exits_with_0_is_restarted():
    policy = {"policy": "OnFailure", "max_restarts": 2}
    roster = (Unit(name="a", processes=("a",), supervised_restart=policy),)
    terminated = {**EXITED["terminated"], "exitCode": 0, "message": STOPPED_MESSAGE}
    exited = pod("a", {"terminated": terminated}, phase="Succeeded")
    exited["spec"]["containers"][0]["livenessProbe"] = {}
    observation = observe(exited, roster=roster)
    (process,) = observation.status
    reason = "unhealthy, 3 tests in a row"
    assert (process.displayed_state, process.reason) == ("pending", reason)
    assert observation.containers["a"].failed_tests == 3
    assert observation.unit_statuses["a"].retry.cause == reason
    assert actions(roster, observation) != ["finish"]


def test_restart_of_an_experiment_is_decided_once():
    policies = Policies(on_failure="restart", max_restarts=1)
    roster = (Unit(name="a", processes=("a",)),)
    failed = observe(pod("a", EXITED, phase="Failed"), roster=roster)
    events = decided(roster, failed, policies=policies).events
    assert [event["event"] for event in events] == ["restarting", "restarted"]
    assert events[0]["failed"] == "a"
    current = Round(number=1, start=NOW + 5, in_row=1, reason="a failed")
    record = Record(round=current)
    # The supervisor was killed before it had requested the restart.
    assert actions(roster, failed, policies=policies, record=record) == []
    requested = Control(stop=NOW, start=NOW + 5, code="experiment-restarts", reason="a failed")
    waiting = observe(pod("a", EXITED, phase="Failed", control=requested), roster=roster)
    assert waiting.status.processes[0].next_start == NOW + 5
    decision = decided(roster, waiting, policies=policies, record=record)
    assert (decision.actions, decision.wake_at) == ((), NOW + 5)
    later = actions(roster, waiting, policies=policies, record=record, now=NOW + 5)
    assert later == ["start a"]


def test_an_experiment_restarts_when_all_of_its_processes_have_been_stopped():
    policies = Policies(on_failure="restart")
    roster = (
        Unit(name="a", processes=("a",)),
        Unit(name="b", processes=("b",), starts_after={"a": "started"}),
        Unit(name="c", processes=("c",), starts_after={"b": "started"}),
    )
    record = Record(round=Round(number=1, start=NOW, reason="b failed"))
    options = {"policies": policies, "record": record}
    requested = Control(stop=NOW, start=NOW, code="experiment-restarts", reason="b failed")
    failed = pod("b", EXITED, phase="Failed", control=requested)
    stopped = pod("a", EXITED, phase="Failed", control=requested)
    running = observe(pod("a", RUNNING), failed, pod("c", RUNNING), roster=roster)
    assert actions(roster, running, **options) == ["stop c: the experiment restarts: b failed"]
    one = observe(pod("a", RUNNING), failed, roster=roster)
    assert actions(roster, one, **options) == ["stop a: the experiment restarts: b failed"]
    assert actions(roster, observe(stopped, failed, roster=roster), **options) == ["start a"]
    # A user had stopped it.
    by_user = pod("a", EXITED, phase="Failed", control=Control(stop=STOP))
    assert actions(roster, observe(by_user, failed, roster=roster), **options) == []


def test_damaged_annotations_are_ignored():
    for text in ("", "x", "[]", '{"stop": []}', "null"):
        assert decode_control(text) == Control()
        assert decode_attempt(text) == Attempt()
    assert decode_control('{"stop": 5, "unknown": 1}') == Control(stop=5.0)
    with pytest.raises(ValueError, match="not a manifest"):
        decode_manifest("eJyLjgUAARUAuQ==")


def test_object_of_the_next_attempt():
    hook = {"preStop": {"exec": {"command": stop_command(15, 30)}}}
    spec = {"containers": [{"name": "a", "lifecycle": hook}]}
    body = {"kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    manifest = attempts.with_manifest(body)["metadata"]["annotations"][MANIFEST]
    assert decode_manifest(manifest) == body
    assert len(manifest) < 300
    second = attempts.next_attempt(body, Attempt(number=2, restarts=1))
    assert second["metadata"]["name"] == "a--2"
    assert second["spec"]["hostname"] == "a"
    assert second["metadata"]["annotations"][MANIFEST] == manifest
    job = {
        "kind": "Job",
        "metadata": {"name": "a" * 63},
        "spec": {"template": {"metadata": {}, "spec": {}}},
    }
    name = attempts.next_attempt(job, Attempt(number=12))["metadata"]["name"]
    assert len(name) <= 63
    assert name.endswith("--12")


def test_control_of_all_kinds_of_units(shared, name):
    exp = shared.new_experiment(name)
    # The first process contains the roster. It ignores TERM.
    stubborn = python(exp, "stubborn", f"print('up'); {FOREVER}".replace(";", "\n"))
    stubborn.command[-1] = (
        "import signal; signal.signal(15, signal.SIG_IGN); print('up'); "
        "exec('while True: signal.pause()')"
    )
    stubborn.termination_grace_period(600)
    stubborn.restart_policy("Always").ready(log="^up")
    job = python(exp, "job", f"print('up'); {FOREVER}")
    job.restart_policy("OnFailure", max_restarts=3).ready(log="^up")
    team = exp.new_process_group("team").termination_grace_period(1)
    for member in ("one", "two"):
        team.new_process(member, command=["python3", "-u", "-c", f"print('up'); {FOREVER}"])
    unschedulable(exp, "waiting").starts_after("job", "succeeded")
    shared.launch(exp)
    until(shared, name, lambda status: all_running(status.processes[:4]))
    wait_until(lambda: len(list(shared.iter_logs(name))) == 4)
    with pytest.raises(SpecError, match="share a Pod.*name the group 'team'"):
        shared.restart_processes(name, ["one"])
    with pytest.raises(SpecError, match="grace period of 'stubborn' is 600 s"):
        shared.stop_processes(name, ["stubborn"], grace=700)
    with pytest.raises(BackendError, match="'waiting' has not started yet.*stop these, too"):
        shared.stop_processes(name, ["waiting"])

    statuses = shared.restart_processes(name, ["team", "stubborn", "job"], at_once=True)
    assert [item.state for item in statuses] == [State.RUNNING] * 4
    assert [item.restarts for item in statuses] == [1] * 4
    # A restarted process without a readiness test may not have written its line yet.
    for process in ("two", "job"):
        wait_until(lambda process=process: shared.get_log(name, process) == "up\nup\n")
    assert shared.get_log(name, "stubborn", previous=True) == "up\n"
    assert shared.describe_process(name, "waiting").state is State.PENDING

    stopped = shared.stop_processes(name, at_once=True)
    assert {item.displayed_state for item in stopped} == {"stopped", "pending"}
    assert shared.get_log(name, "job").startswith("up\n")
    shared.delete(name)


CREATING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("pods", "node"),
    [
        ([pod("a", RUNNING)], "n1"),
        ([pod("a", EXITED, phase="Failed")], "n1"),
        # The process has not started.
        ([pod("a", CREATING, phase="Pending")], ""),
        ([pod("a", EXITED, phase="Failed"), pod("a", RUNNING, attempt=2, node="n2")], "n2"),
        ([pod("a", EXITED, phase="Failed", control=RESTARTING)], ""),
    ],
)
def test_the_node_is_that_of_the_latest_execution(pods, node):
    (process,) = observe(*pods).status
    assert process.node == node


CHAIN = (
    Unit(name="db", processes=("db",)),
    Unit(name="app", processes=("app",), starts_after={"db": "started"}),
    Unit(name="client", processes=("client",), starts_after={"app": "started"}),
)


def steps(verb, *pods, names=("db", "app", "client"), grace=None):
    """Return the units that are stopped, killed and started for a request of a client."""
    observation = observe(*pods, roster=CHAIN)
    request = Request(verb, list(names), grace) if verb else None
    found = RequestedSteps(CHAIN).find(observation, NOW, request)
    return dict(found.stops), list(found.kills), list(found.starts)


def test_requests_stop_units_in_the_reverse_of_their_start_order():
    db, app, client = pod("db", RUNNING), pod("app", RUNNING), pod("client", RUNNING)
    for verb in ("stop", "restart"):
        assert steps(verb, db, app, client) == ({"client": math.inf}, [], [])
        assert steps(verb, db, app, client, grace=5) == ({"client": NOW + 5}, [], [])
        assert steps(verb, db, client, names=["db", "client"])[0] == {"client": math.inf}
        # Without a grace period, there is no order.
        stops, kills, _ = steps(verb, db, app, client, grace=0)
        assert stops == dict.fromkeys(["db", "app", "client"], NOW)
        assert sorted(kills) == ["app", "client", "db"]
    observation = observe(db, app, client, roster=CHAIN)
    assert stopped_now(CHAIN, observation, ["db", "app"], NOW) == ["app"]


def test_a_wave_is_stopped_when_the_previous_one_has_ended():
    db, app = pod("db", RUNNING), pod("app", RUNNING)
    stopping = pod("client", RUNNING, control=STOPPING)
    assert steps("stop", db, app, stopping) == ({}, [], [])
    stopped = pod("client", EXITED, control=STOPPING, phase="Failed")
    assert steps("stop", db, app, stopped)[0] == {"app": math.inf}
    # A restart of all three: their starts are recorded first, and none starts before all ended.
    waiting = Control(start=STOP)
    db, app = pod("db", RUNNING, control=waiting), pod("app", RUNNING, control=waiting)
    restarting = pod("client", EXITED, control=RESTARTING, phase="Failed")
    assert steps("restart", db, app, restarting) == ({"app": math.inf}, [], [])
    app = pod("app", EXITED, control=RESTARTING, phase="Failed")
    assert steps("restart", db, app, restarting) == ({"db": math.inf}, [], [])
    db = pod("db", EXITED, control=RESTARTING, phase="Failed")
    assert steps("", db, app, restarting) == ({}, [], ["db"])


def test_a_shorter_grace_period_applies_to_a_stop_that_has_begun():
    stopping = pod("db", RUNNING, control=STOPPING)
    assert steps("stop", stopping, names=["db"], grace=90) == ({"db": STOP + 90}, [], [])
    assert steps("stop", stopping, names=["db"], grace=0) == ({"db": NOW}, ["db"], [])
    due = pod("db", RUNNING, control=replace(STOPPING, kill=NOW))
    assert steps("stop", due, names=["db"])[1] == ["db"]
    later = pod("db", RUNNING, control=replace(STOPPING, kill=NOW + 1))
    assert steps("stop", later, names=["db"]) == ({}, [], [])


def test_a_started_process_that_kubernetes_restarts_with_a_delay_is_stopped():
    delayed = pod("db", {"waiting": {"reason": "CrashLoopBackOff"}}, control=Control(start=STOP))
    assert steps("restart", delayed, names=["db"])[0] == {"db": math.inf}


# Save for a moment after the first signal. A second signal interrupts this.
SAVES = """
import os, signal, time
def stop(number, _):
    print(signal.Signals(number).name)
    signal.signal(15, lambda *_: os._exit(1))
    time.sleep(0.5)
    print("saved")
    os._exit(0)
signal.signal(15, stop)
print("up")
while True: time.sleep(100)
"""


def test_programs_behind_shells_save_their_work(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    line = f"python3 -u -c '{SAVES}' | cat; echo after"
    for process in ("stopped", "job", "drained"):
        exp.new_process(process, cmd=line)
    exp.get_process("job").job()
    shared.launch(exp)
    wait_until(lambda: len(list(shared.iter_logs(name))) == 3)
    path = kube_cluster.path(f"pods/{name}-drained")
    log = shared.api.open_stream(f"{path}/log", query={"follow": "true"})
    # A drain of its node deletes a Pod in the same way.
    kube_cluster.raw.call("DELETE", path, {})
    shared.stop_processes(name, ["stopped", "job"])
    saved = "up\nSIGTERM\nsaved\n"
    # Some container runtimes add a message when the container has been removed.
    drained = b"".join(log.chunks()).decode()
    assert drained.startswith(saved)
    assert "after" not in drained
    for process in ("stopped", "job"):
        wait_until(lambda process=process: shared.get_log(name, process) == saved, 10)
    warnings = [event.text for event in shared.iter_events(name) if "PreStop" in event.text]
    assert warnings == []


# Report the first signal.
REPORTS = """
import os, signal
def stop(number, _):
    print(signal.Signals(number).name)
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)
print("up")
while True: signal.pause()
"""


def test_a_first_process_receives_its_own_signal(kube_cluster, shared, name):
    """The node sends it if the hook cannot, and if the feature of the server is enabled."""
    exp = shared.new_experiment(name)
    for process in ("hook", "node"):
        python(exp, process, REPORTS).stop_signal("INT").ready(log="^up")
    hook = {"preStop": {"exec": {"command": ["/no/shell"]}}}
    exp.get_process("node").container_yml = {"lifecycle": hook}
    shared.launch(exp)
    shared.wait(name, until="ready", timeout=90)
    pod = kube_cluster.raw.call("GET", kube_cluster.path(f"pods/{name}-node"))
    (container,) = pod["spec"]["containers"]
    shared.stop_processes(name)
    assert shared.get_log(name, "hook") == "up\nSIGINT\n"
    expected = container["lifecycle"].get("stopSignal", "SIGTERM")
    assert shared.get_log(name, "node") == f"up\n{expected}\n"
