"""The supervisor's loop and a wait, with an API server in memory.

The tests play the part of the nodes: they write the states of Pods.
"""

import contextlib
import json
import os
import select
import signal
from dataclasses import replace

import pytest

from symphony.errors import LaunchFailed, Unreachable
from symphony.status import ReasonCode
from symphony_kube.api.client import Api
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.api.retries import Timeouts
from symphony_kube.lifecycle.supervisor import program
from symphony_kube.lifecycle.supervisor.detached import SupervisorDirectory, directory_of
from symphony_kube.lifecycle.supervisor.loop import supervise
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.render.roster import Unit
from symphony_kube.watch import wait
from tests.backends.kube.conftest import (
    FOREVER,
    python,
    unschedulable,
    wait_until,
    write_kubeconfig,
)
from tests.backends.kube.nodes import Nodes


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


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
    directory = directory_of(KubeExperiment(shared.api, shared.scope(name)))
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


def test_a_supervisor_ends_when_another_program_deletes_its_experiment(
    kube_cluster, any_cluster, name
):
    exp = any_cluster.new_experiment(name)
    unschedulable(exp, "first")
    unschedulable(exp, "second").starts_after("first")
    scope = any_cluster.launch(exp).scope
    directory = directory_of(KubeExperiment(any_cluster.api, scope))
    assert directory.holder() is not None
    if scope.shared:
        kube_cluster.raw.call("DELETE", kube_cluster.path("secrets"))
        kube_cluster.raw.call("DELETE", kube_cluster.path("pods"))
    else:
        kube_cluster.raw.call("DELETE", f"/api/v1/namespaces/{name}")
    wait_until(lambda: not directory.path.exists())


@pytest.mark.parametrize("cause", ["time", "directory", "other run"])
def test_a_supervisor_ends_when_its_cluster_is_gone_for_good(
    kube_cluster, tmp_path, monkeypatch, cause
):
    """No API server listens at the address."""
    units = (Unit(name="a", processes=("a",)),)
    scope = Scope(experiment="e", namespace="e", run="one")
    run = SupervisedRun(scope=scope, roster=units, units={})
    directory = SupervisorDirectory(tmp_path / "e")
    directory.prepare(run)
    errors = []

    def abandon(message):
        errors.append(message)
        if cause == "time":
            monkeypatch.setattr(program, "GIVE_UP_SECONDS", 0.0)
        elif cause == "directory":
            directory.remove()
        else:
            directory.prepare(replace(run, scope=replace(scope, run="two")))

    timeouts = Timeouts(pauses=(0.01,), outage=0.05)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig")
    with contextlib.closing(Api(kubeconfig=kubeconfig, timeouts=timeouts)) as api:
        store = program.DetachedStore(api, directory)
        assert not store.is_abandoned(run, program.GIVE_UP_SECONDS / 2)
        with pytest.raises(Unreachable):
            supervise(api, run, store, on_error=abandon)
    assert len(errors) == 1
    # A command starts the supervisor again if it has only given up.
    assert directory.exists is (cause != "directory")


def test_wait_fails_if_an_awaited_image_cannot_be_pulled(shared, name, nodes, monkeypatch):
    exp = shared.new_experiment(name)
    exp.new_process("first", container_image="127.0.0.1:1/none:1")
    unschedulable(exp, "second").starts_after("first")
    shared.launch(exp)
    nodes.wait("first", "ImagePullBackOff", 'Back-off pulling image "127.0.0.1:1/none:1"')
    with pytest.raises(LaunchFailed) as caught:
        shared.wait(name, until="started", timeout=60)
    assert str(caught.value).startswith(
        "process 'first', for which 'second' waits, cannot start: ImagePullBackOff: "
        "127.0.0.1:1/none:1"
    )
    assert str(caught.value).endswith("; set an image that the cluster can pull")
    monkeypatch.setattr(wait, "IMAGE_SECONDS", 0.2)
    reason = f"'first' of experiment '{name}' .* for 0.2 s: (ErrImagePull|ImagePullBackOff): "
    with pytest.raises(TimeoutError, match=reason):
        shared.wait(name)
    shared.delete(name)
