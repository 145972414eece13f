"""Changing running experiments, with an API server in memory: what changes, what is refused, and
interrupted changes.

`test_change_live.py` tests changes on a real server.
"""

import base64
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest

from symphony.errors import AlreadyExists, BackendError, LaunchIncomplete, Unreachable
from symphony.plan.policies import Policies
from symphony.status import ReasonCode, State
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.changes import apply_changes
from symphony_kube.lifecycle import description, launch
from symphony_kube.lifecycle.supervisor import detached
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.user_requests import obstacles, operation
from tests.backends.kube.conftest import FOREVER, python, unschedulable, wait_until
from tests.backends.kube.nodes import Nodes
from tests.patched_python import patched_python


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def nodes(kube_cluster, name):
    return Nodes(kube_cluster, name)


STEPS = ("_publish_roster", "_create_unit", "_let_supervisor_take_over", "_remove")


def test_interrupted_changes_are_completed(shared, kube_cluster, name, tmp_path, monkeypatch):
    """No node accepts the Pods, because only the objects matter."""
    token = tmp_path / "token"

    def describe(version):
        token.write_text(f"value {version}")
        secrets = {"token": str(token)}
        policies = {"on_failure": "stop"} if version == "b" else {}
        experiment = shared.new_experiment(name, secrets=secrets, **policies)
        unschedulable(experiment, "same").binds("same")
        team = experiment.new_process_group("team")
        team.node_selector("symphony.test/no-such-node", "true")
        for member in ("one", "two"):
            process = team.new_process(member, command=["sleep", "1000"])
            if member == "two":
                process.set_env("VERSION", version)
        team.set_env_secret("TOKEN", "token")
        unschedulable(experiment, f"only-{version}").binds(f"only-{version}")
        unschedulable(experiment, f"later-{version}").starts_after("same", "started")
        return experiment

    def objects(kind):
        items = kube_cluster.raw.call("GET", kube_cluster.path(kind))["items"]
        return {item["metadata"]["name"].removeprefix(f"{name}-"): item for item in items}

    shared.launch(describe("a"))
    uid = objects("pods")["same"]["metadata"]["uid"]
    changes = shared.diff(describe("b"))
    assert changes.names("unchanged") == ["same"]
    assert changes.names("restarted") == ["one", "two"]
    reasons = [process.text for process in changes.processes if process.name == "one"]
    assert "the contents of secret 'token' have changed" in reasons[0]
    assert [change.setting for change in changes.policies] == ["on_failure"]

    version = "a"
    for step in STEPS:
        version = "b" if version == "a" else "a"
        with monkeypatch.context() as patched:
            patched.setattr(apply_changes._Application, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                shared.up(describe(version))
        assert not shared.diff(describe(version)).is_empty, step
        shared.up(describe(version))
        assert shared.diff(describe(version)).is_empty, step
        status = shared.describe_experiment(name)
        expected = ["same", "one", "two", f"only-{version}", f"later-{version}"]
        assert [process.name for process in status] == expected, step
        pods = objects("pods")
        assert pods["same"]["metadata"]["uid"] == uid
        units = {pod["metadata"]["labels"].get("symphony/unit"): pod for pod in pods.values()}
        variables = units["team"]["spec"]["containers"][1]["env"]
        assert {"name": "VERSION", "value": version} in variables
        assert set(objects("services")) == {"same", f"only-{version}"}
        stored = objects("secrets")["symphony-secrets"]["data"]["token"]
        assert base64.b64decode(stored).decode() == f"value {version}"

    (run,) = [run for run in shared.list_runs() if run.experiment == name]
    assert f"later-{version}" in run.load_record()["definition"]["processes"]

    # Another command launches the experiment after this one has looked for the description.
    read, earlier = description.DescriptionStore.read, iter([None])
    with monkeypatch.context() as patched:
        patched.setattr(
            description.DescriptionStore, "read", lambda store: next(earlier, read(store))
        )
        assert shared.diff(describe(version)).is_empty

    # Two commands change the experiment at the same time.
    descriptions = [describe("a"), describe("b")]
    threads = [threading.Thread(target=shared.up, args=(item,)) for item in descriptions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same = [shared.diff(item).is_empty for item in descriptions]
    assert sorted(same) == [False, True]
    shared.delete(name)


def policies_of(cluster, name):
    """Return the policies of the supervisor of this machine, or None if none is running."""
    directory = directory_of(KubeExperiment(cluster.api, cluster.scope(name)))
    return directory.run().policies if directory.holder() else None


def test_policies_are_changed_by_the_supervisor_of_this_machine(shared, name, nodes, monkeypatch):
    def describe(**policies):
        experiment = shared.new_experiment(name, **policies)
        python(experiment, "server", FOREVER)
        python(experiment, "worker", FOREVER)
        return experiment

    shared.launch(describe())
    nodes.run("server", "worker")
    before = shared.wait(name, until="started", timeout=60)
    assert policies_of(shared, name) is None
    with monkeypatch.context() as patched:
        patched.setattr(apply_changes._Application, "_let_supervisor_take_over", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shared.up(describe(ends_with=["server"]))
    # The change is not complete, although no process is changed.
    assert shared.diff(describe(ends_with=["server"])).policies
    # Another command has started a supervisor, which is faster than that of the change.
    spawn, spawned = detached._spawn, []

    def spawn_second(directory, descriptor):
        if not spawned:
            spawned.append(directory)
            spawn(directory, None)
            wait_until(directory.holder)
        spawn(directory, descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(detached, "_spawn", spawn_second)
        shared.up(describe(ends_with=["server"]))
    assert spawned
    assert policies_of(shared, name) == Policies(ends_with=("server",))
    assert shared.diff(describe(ends_with=["server"])).is_empty
    shared.up(describe())
    assert policies_of(shared, name) is None
    assert shared.describe_experiment(name) == before
    shared.up(describe(ends_with=["worker"], deadline=1000))
    assert shared.describe_experiment(name).deadline == pytest.approx(before.created + 1000)
    # The Pods have no deadline of their own, so the supervisor can extend it.
    shared.up(describe(ends_with=["worker"], deadline=2000))
    nodes.exit("worker", 0)
    wait_until(lambda: nodes.is_stopped("server"))
    nodes.exit("server", 143)
    status = shared.wait(name, timeout=60)
    assert [process.displayed_state for process in status] == ["stopped", "succeeded"]
    assert status.processes[0].reason == "the experiment ended with worker"
    shared.delete(name)


def interrupt(*_, **_options):
    raise KeyboardInterrupt


def test_deadline_of_running_pods_cannot_be_extended(shared, name):
    def describe(deadline, seed="1"):
        experiment = shared.new_experiment(name, deadline=deadline)
        unschedulable(experiment, "worker", env={"SEED": seed})
        return experiment

    shared.launch(describe(1000))
    message = "Kubernetes stops worker at the present deadline"
    for deadline in (2000, None):
        with pytest.raises(AlreadyExists, match=message):
            shared.up(describe(deadline))
    shared.up(describe(500))
    assert policies_of(shared, name) == Policies(deadline=500)
    # The Pods still have the first deadline.
    shared.up(describe(1000))
    # The new Pod of a restarted process has the new deadline.
    shared.up(describe(2000, seed="2"))
    assert shared.diff(describe(2000, seed="2")).is_empty
    shared.delete(name)


def test_a_manifest_that_is_too_large_for_an_annotation_cannot_be_replaced(shared, name):
    def describe(**variables):
        experiment = shared.new_experiment(name)
        unschedulable(experiment, "worker", env=variables)
        return experiment

    shared.launch(describe())
    assert shared.diff(describe(A="small")).relaunch == ()
    # Random bytes, because the manifest is compressed.
    large = {f"V{number}": Random(number).randbytes(40_000).hex() for number in range(3)}
    reasons = shared.diff(describe(**large)).relaunch
    assert reasons == ("the manifest of worker is too large to be replaced",)
    shared.delete(name)


@pytest.mark.parametrize("follows", [True, False])
def test_a_supervisor_of_an_earlier_version_on_another_machine_does_not_notice_a_change(
    shared, name, follows
):
    def describe(seed):
        experiment = shared.new_experiment(name, ends_with=["worker"])
        unschedulable(experiment, "worker", env={"SEED": seed})
        return experiment

    shared.launch(describe("1"))
    store = description.DescriptionStore(KubeExperiment(shared.api, shared.scope(name)))
    with store.claimed() as running:
        store.write(replace(running, host="another", follows=follows))
    reasons = shared.diff(describe("2")).relaunch
    expected = (
        "its supervisor runs on the host another with an earlier version of symphony; run the "
        "command there",
    )
    assert reasons == (() if follows else expected)
    # Nothing is changed, so there is nothing that the supervisor would have to notice.
    assert shared.diff(describe("1")).relaunch == ()
    shared.delete(name)


@pytest.mark.parametrize("is_momentary", [True, False])
def test_change_waits_for_a_node_that_is_full_for_a_moment(
    shared, name, nodes, monkeypatch, is_momentary
):
    """There is no supervisor that could start the process that waits for the other one."""

    def describe(seed):
        experiment = shared.new_experiment(name)
        python(experiment, "db", FOREVER, env={"SEED": seed})
        python(experiment, "app", FOREVER, env={"SEED": seed}).starts_after("db", "started")
        return experiment

    shared.launch(describe("1"))
    nodes.run("db")
    nodes.run("app")
    directory = directory_of(KubeExperiment(shared.api, shared.scope(name)))
    wait_until(lambda: not directory.exists)
    is_done, seen = operation.Operation._is_done, threading.Event()

    def note_obstacle(present, observation):
        done = is_done(present, observation)
        if observation.containers["db"].cause.code is ReasonCode.UNSCHEDULABLE:
            seen.set()
        return done

    monkeypatch.setattr(operation.Operation, "_is_done", note_obstacle)
    if not is_momentary:
        monkeypatch.setattr(obstacles, "OBSTACLE_SECONDS", 0.1)
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(shared.up, describe("2"))
        wait_until(lambda: nodes.is_stopped("app"))
        nodes.exit("app", 143)
        wait_until(lambda: nodes.is_stopped("db"))
        nodes.exit("db", 143)
        nodes.refuse("db--2")
        assert seen.wait(60)
        if not is_momentary:
            message = f"{name!r}: app could not be started yet.*db.*Unschedulable.*repeat"
            with pytest.raises(BackendError, match=message) as caught:
                change.result(timeout=60)
            assert "\n" not in str(caught.value)
            change = pool.submit(shared.up, describe("2"))
        nodes.run("db--2")
        nodes.run("app--2")
        change.result(timeout=60)
    assert shared.diff(describe("2")).is_empty
    shared.delete(name)


def test_supervisor_moves_to_the_machine_of_the_change(shared, name, nodes, tmp_path, monkeypatch):
    def describe(**policies):
        experiment = shared.new_experiment(name, **policies)
        python(experiment, "server", FOREVER)
        python(experiment, "worker", FOREVER)
        python(experiment, "later", "pass").starts_after("worker", "succeeded")
        return experiment

    shared.launch(describe(ends_with=["worker"]))
    nodes.run("server", "worker")
    first = directory_of(KubeExperiment(shared.api, shared.scope(name)))
    # The name of the machine is another one for this process and the supervisor that it starts.
    code = "import socket; socket.gethostname = lambda: 'b'"
    monkeypatch.setattr(sys, "executable", patched_python(tmp_path / "python", code))
    monkeypatch.setattr(socket, "gethostname", lambda: "b")
    assert not directory_of(KubeExperiment(shared.api, shared.scope(name))).exists
    shared.up(describe(ends_with=["later"]))
    wait_until(lambda: not first.path.exists())
    assert policies_of(shared, name) == Policies(ends_with=("later",))
    nodes.exit("worker", 0)
    nodes.run("later")
    nodes.exit("later", 0)
    wait_until(lambda: nodes.is_stopped("server"))
    nodes.exit("server", 143)
    status = shared.wait(name, timeout=60)
    states = [process.displayed_state for process in status]
    assert states == ["stopped", "succeeded", "succeeded"]
    shared.delete(name)


def test_up_stops_in_the_reverse_of_the_start_order(shared, name, nodes):
    """The processes that are removed and those that are restarted have a common order."""

    def describe(version, *, removed=False):
        experiment = shared.new_experiment(name)
        for each in ("db", "app", "gone", "same"):
            if each == "gone" and removed:
                continue
            process = python(experiment, each, FOREVER)
            if each != "db":
                process.starts_after("db", "started")
            if each != "same":
                process.set_env("VERSION", version)
        return experiment

    shared.launch(describe("1"))
    nodes.run("db", "app", "gone", "same")
    shared.wait(name, until="started", timeout=60)
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(shared.up, describe("2", removed=True))
        wait_until(lambda: nodes.is_stopped("app") and nodes.is_stopped("gone"))
        nodes.exit("app", 143)
        assert not nodes.is_stopped("db")
        nodes.exit("gone", 143)
        wait_until(lambda: nodes.is_stopped("db"))
        assert nodes.find("app--2") is None
        nodes.exit("db", 143)
        nodes.run("db--2")
        nodes.run("app--2")
        changes = change.result()
    assert (changes.names("restarted"), changes.names("removed")) == (["db", "app"], ["gone"])
    assert not nodes.is_stopped("same")
    assert shared.diff(describe("2", removed=True)).is_empty
    # A restart on request has the same order.
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(shared.restart_processes, name, ["db", "app"])
        wait_until(lambda: nodes.is_stopped("app--2"))
        assert not nodes.is_stopped("db--2")
        nodes.exit("app--2", 143)
        wait_until(lambda: nodes.is_stopped("db--2"))
        assert nodes.find("app--3") is None
        nodes.exit("db--2", 143)
        nodes.run("db--3")
        nodes.run("app--3")
        change.result()
    shared.delete(name)


def test_keys_of_encrypted_services_are_created_and_kept(kube_cluster, shared, name):
    def describe(*encrypted):
        experiment = shared.new_experiment(name)
        for each in ("one", "two"):
            unschedulable(experiment, each).binds(each, encrypted=each in encrypted)
        unschedulable(experiment, "client").connects(["one", "two"])
        return experiment

    def keys():
        path = kube_cluster.path(f"secrets/{name}-symphony-keys")
        return (kube_cluster.raw.find(path) or {}).get("data")

    shared.launch(describe())
    assert keys() is None
    shared.up(describe("one"))
    first = keys()
    assert len(first) == 4
    # The process `one` is not restarted, so its keys must not change.
    assert shared.up(describe("one", "two")).names("restarted") == ["two", "client"]
    assert keys() == first
    shared.delete(name)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Unreachable("the API server does not answer"), "does not answer"),
        (KeyboardInterrupt(), "the launch was interrupted"),
    ],
)
def test_up_continues_an_interrupted_launch(shared, name, nodes, monkeypatch, problem, message):
    def fail(*_):
        raise problem

    experiment = shared.new_experiment(name)
    python(experiment, "first", FOREVER)
    python(experiment, "second", FOREVER).starts_after("first", "started")
    with monkeypatch.context() as patched:
        patched.setattr(launch, "_supervise", fail)
        left = f"{message}; nothing was deleted, and these keep running: first; 'symphony up'"
        with pytest.raises(LaunchIncomplete, match=left):
            shared.up(experiment)
    assert [run.experiment for run in shared.list_runs()].count(name) == 1
    # This process has not exited, so its claim must expire.
    monkeypatch.setattr(description, "CLAIM_SECONDS", 0.0)
    try:
        assert "second" in shared.diff(experiment).names("added")
        nodes.run("first")
        with ThreadPoolExecutor(1) as pool:
            change = pool.submit(shared.up, experiment)
            nodes.run("second")
            change.result()
        status = shared.wait(name, until="ready", timeout=60)
        assert [item.name for item in status if item.state is State.RUNNING] == ["first", "second"]
        assert shared.diff(experiment).is_empty
    finally:
        shared.delete(name)
