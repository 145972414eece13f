"""The supervisor's loop, with an API server in memory: what it writes to the server.

The tests play the part of the nodes: they write the states of Pods.
"""

import json
import os
import select
import signal
import time

import pytest

from symphony.status import ReasonCode
from symphony_kube.api.labels import ATTEMPT, CONTROL
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.state.control_state import decode_attempt, decode_control

from .conftest import FOREVER, python, wait_until


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


class Nodes:
    """The nodes of the cluster, and what the supervisor writes to the Pods of an experiment."""

    def __init__(self, kube, name):
        self._kube = kube
        self._name = name

    def path(self, pod):
        return self._kube.path(f"pods/{self._name}-{pod}")

    def find(self, pod):
        return self._kube.raw.find(self.path(pod))

    def await_pod(self, pod):
        return wait_until(lambda: self.find(pod))

    def _report(self, pod, phase, state):
        (container,) = self.await_pod(pod)["spec"]["containers"]
        status = {"name": container["name"], "restartCount": 0, "state": state}
        patch = {
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "containerStatuses": [status]},
        }
        self._kube.raw.call(
            "PATCH", self.path(pod), patch, content_type="application/merge-patch+json"
        )

    def run(self, *pods):
        for pod in pods:
            self._report(pod, "Running", {"running": {"startedAt": now()}})

    def exit(self, pod, code):
        times = {"startedAt": now(), "finishedAt": now()}
        phase = "Failed" if code else "Succeeded"
        state = {"running": None, "terminated": {"exitCode": code, **times}}
        self._report(pod, phase, state)

    def control(self, pod):
        return decode_control(self.find(pod)["metadata"]["annotations"].get(CONTROL))

    def await_control(self, pod):
        wait_until(lambda: CONTROL in self.find(pod)["metadata"]["annotations"])
        return self.control(pod)

    def attempt(self, pod):
        return decode_attempt(self.await_pod(pod)["metadata"]["annotations"].get(ATTEMPT))

    def is_stopped(self, pod):
        return "activeDeadlineSeconds" in self.find(pod)["spec"]


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@pytest.fixture
def nodes(kube_cluster, name):
    return Nodes(kube_cluster, name)


def test_a_unit_restarts_and_then_fails(shared, name, nodes):
    exp = shared.new_experiment(name)
    for rank in exp.new_ranks("u", 2, command=["python3", "-c", FOREVER]):
        rank.restart_policy("OnFailure", max_restarts=1)
    shared.launch(exp)
    nodes.run("u-0", "u-1")
    nodes.exit("u-1", 3)
    other, first = nodes.await_control("u-0"), nodes.control("u-1")
    reason = "the unit restarts: u-1 exited with 3"
    assert (first.reason, first.code, first.in_row) == (reason, "backing-off", 1)
    assert (first.command, first.others) == ("restart", "u-0:1")
    assert (other.start, other.reason, other.in_row) == (first.start, first.reason, first.in_row)
    assert nodes.is_stopped("u-0")
    assert nodes.find("u-1--2") is None
    nodes.exit("u-0", 143)
    for pod in ("u-0--2", "u-1--2"):
        attempt = nodes.attempt(pod)
        assert (attempt.number, attempt.restarts, attempt.retries) == (2, 1, 1)
    nodes.run("u-0--2", "u-1--2")
    nodes.exit("u-1--2", 3)
    failed = nodes.await_control("u-0--2")
    expected = ("the unit failed: u-1 exited with 3", ReasonCode.UNIT_FAILED.value, 0.0)
    assert (failed.reason, failed.code, failed.start) == expected
    shared.delete(name)


def test_an_experiment_restarts_in_waves(shared, name, nodes):
    exp = shared.new_experiment(name, on_failure={"policy": "restart", "max_restarts": 1})
    python(exp, "a", FOREVER)
    python(exp, "b", FOREVER).starts_after("a", "started")
    python(exp, "c", FOREVER).starts_after("b", "started")
    shared.launch(exp)
    nodes.run("a")
    nodes.run("b")
    nodes.run("c")
    nodes.exit("b", 3)
    first = nodes.await_control("c")
    code = ReasonCode.EXPERIMENT_RESTARTS.value
    assert (first.reason, first.code) == ("b failed (exit code 3)", code)
    assert nodes.await_control("b").start == first.start
    assert nodes.control("a").stop == 0.0
    nodes.exit("c", 143)
    assert nodes.await_control("a").start == first.start
    nodes.exit("a", 143)
    assert (nodes.attempt("a--2").round, nodes.find("b--2")) == (1, None)
    nodes.run("a--2")
    assert nodes.attempt("b--2").round == 1
    # The next failure ends the experiment.
    nodes.exit("b--2", 3)
    wait_until(lambda: nodes.is_stopped("a--2"))
    assert "not restarted again, because the limit is 1" in shared.describe_experiment(name).note
    shared.delete(name)


def test_pods_that_are_deleted_while_no_supervisor_is_running(kube_cluster, shared, name, nodes):
    exp = shared.new_experiment(name)
    for process in ("a", "b"):
        python(exp, process, FOREVER).restart_policy("Always")
    shared.launch(exp)
    nodes.run("a", "b")
    directory = directory_of(shared.api, shared.scope(name))
    record = directory.path / "record"

    def has_recorded_both():
        text = record.read_text() if record.exists() else ""
        return set(json.loads(text or "{}").get("created", ())) == {"a", "b"}

    wait_until(has_recorded_both)
    supervisor = os.pidfd_open(directory.holder())
    signal.pidfd_send_signal(supervisor, signal.SIGKILL)
    select.select([supervisor], [], [])
    os.close(supervisor)
    before = nodes.find("a")["metadata"]["uid"]
    options = {"gracePeriodSeconds": 0}
    kube_cluster.raw.call("DELETE", nodes.path("a"), options)
    shared.describe_experiment(name)
    assert wait_until(lambda: nodes.find("a"))["metadata"]["uid"] != before
    assert nodes.attempt("a").lost == "lost: its Pod was deleted"
    shared.delete(name)
