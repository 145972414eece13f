"""The record of an experiment: its copies in the Secret and in the first Pod, with an API server in
memory.
"""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony.errors import BackendError
from symphony.plan.policies import Policies
from symphony.status import ReasonCode, State
from symphony_kube.api import error_messages
from symphony_kube.api.compare_and_swap import MAX_TRIES, compare_and_swap
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import ENDING, HOLDER, POLICIES, ROSTER
from symphony_kube.lifecycle import description
from symphony_kube.lifecycle.description import DescriptionStore
from symphony_kube.record import stored_record
from symphony_kube.record.creation_problems import Problem, decode_problems
from symphony_kube.record.encoded_record import (
    EncodedRecord,
    record_in,
    record_of_change,
    record_of_ending,
    record_of_problems,
)
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.record.stored_record import (
    decode_stored,
    encode_stored,
    read_stored_record,
    record_in_secret,
    store_entries,
)
from symphony_kube.render import codec
from symphony_kube.render.roster import Unit, decode_roster
from tests.backends.kube.conftest import FOREVER, managed_objects, python, unschedulable, wait_until
from tests.backends.kube.nodes import Nodes

PROBLEMS = record_of_problems({"a": Problem(text="no", time=1.0)})


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def nodes(kube_cluster, name):
    return Nodes(kube_cluster, name)


@pytest.fixture
def secret(kube_cluster, name):
    """A function that returns the Secret of the experiment."""
    path = kube_cluster.path(f"secrets/{name}-symphony-description")
    return lambda: kube_cluster.raw.find(path)


def ending(reason, *processes):
    stopped = StoppedProcesses(
        processes=processes, reason=reason, code="stopped", time=1.0, failed=False
    )
    return record_of_ending(stopped)


def launch(cluster, name, *processes):
    exp = cluster.new_experiment(name)
    for process in processes or ("worker",):
        unschedulable(exp, process)
    cluster.launch(exp)
    return cluster.scope(name)


# --- the format ---


def test_a_stored_record_is_read_back():
    record = EncodedRecord(roster="r", policies="p", changes="c", problems="{}", ending="e")
    assert decode_stored(encode_stored(record)) == record
    secret = {"metadata": {}, **stored_record.fields_with(record)}
    assert record_in_secret(secret) == record


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"roster":"r"}', '{"version":2,"roster":"r"}', '{"version":1,"roster":1}'],
)
def test_a_damaged_record_and_that_of_a_later_version_are_refused(text):
    with pytest.raises(ValueError, match="not valid|Expecting|property name"):
        decode_stored(codec.compress(text))


def test_the_roster_of_ten_thousand_processes_fits_into_the_secret():
    names = [f"agent-{number}" for number in range(10_000)]
    roster = tuple(
        Unit(name=name, processes=(name,), starts_after={"replay": "ready"}) for name in names
    )
    record = record_of_change(1, roster, Policies(), {}, ())
    problems = {name: Problem(text="exceeded quota: few", time=1.0) for name in names}
    full = stored_record.merge(record, record_of_problems(problems))
    full = stored_record.merge(full, ending("stopped", *names))
    assert len(encode_stored(full)) < 256 << 10


# --- changes by several programs ---


def test_a_change_of_another_program_is_kept(kube_cluster, shared):
    path = kube_cluster.path("configmaps")
    kube_cluster.raw.call("POST", path, {"metadata": {"name": "m"}, "data": {"count": "0"}})
    seen = []

    def change(body):
        seen.append(body["data"]["count"])
        if len(seen) == 1:
            other = {"data": {"count": "1", "other": "x"}}
            kube_cluster.raw.call("PATCH", f"{path}/m", other, MERGE_PATCH)
        return {"data": {"count": str(int(body["data"]["count"]) + 1)}}

    changed = compare_and_swap(shared.api, f"{path}/m", change)
    assert seen == ["0", "1"]
    assert changed["data"] == {"count": "2", "other": "x"}


def test_a_change_is_given_up_if_others_change_the_object_all_the_time(
    kube_cluster, kube_faults, open_cluster
):
    path = kube_cluster.path("configmaps")
    kube_cluster.raw.call("POST", path, {"metadata": {"name": "m"}})
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig))
    kube_faults.answer(409, method="PATCH", path="/configmaps/m")
    with pytest.raises(BackendError, match=r"have changed 'm' of the configmaps 20 times"):
        compare_and_swap(cluster.api, f"{path}/m", lambda _: {"data": {"a": "b"}})
    assert kube_faults.count(method="PATCH", path="/configmaps/m") == MAX_TRIES


def test_several_programs_add_to_the_record_at_the_same_time(shared, name):
    scope = launch(shared, name)
    entries = [PROBLEMS, *(ending(f"reason {number}", "worker") for number in range(4))]
    threads = [
        threading.Thread(target=store_entries, args=(KubeExperiment(shared.api, scope), each))
        for each in entries
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = read_stored_record(KubeExperiment(shared.api, scope)).record
    assert record.problems == PROBLEMS.problems
    assert record.ending in {each.ending for each in entries[1:]}
    assert decode_roster(record.roster)[0].name == "worker"
    shared.delete(name)


def test_the_first_decision_about_the_end_is_the_valid_one(shared, name, secret):
    scope = launch(shared, name)
    store_entries(KubeExperiment(shared.api, scope), ending("first", "worker"))
    version = secret()["metadata"]["resourceVersion"]
    store_entries(KubeExperiment(shared.api, scope), ending("second", "worker"))
    assert secret()["metadata"]["resourceVersion"] == version
    assert record_in_secret(secret()).ending == ending("first", "worker").ending
    shared.delete(name)


def test_a_claim_is_kept_while_a_supervisor_adds_to_the_record(shared, name, secret):
    scope = launch(shared, name)
    store = DescriptionStore(KubeExperiment(shared.api, scope))
    with store.claimed() as claimed:
        store_entries(KubeExperiment(shared.api, scope), PROBLEMS)
        roster = (Unit(name="other", processes=("other",)),)
        store.write(claimed, record_of_change(1, roster, Policies(), {}, ()))
        store_entries(KubeExperiment(shared.api, scope), ending("stopped", "worker"))
        store.write(claimed)
        store.check_claim()
    record = record_in_secret(secret())
    assert decode_roster(record.roster) == roster
    assert (record.problems, record.ending) == (
        PROBLEMS.problems,
        ending("stopped", "worker").ending,
    )
    assert HOLDER not in secret()["metadata"]["annotations"]
    shared.delete(name)


def test_a_claim_is_repeated_if_a_supervisor_adds_to_the_record_after_it_was_read(
    shared, name, secret, monkeypatch
):
    """The API server refuses the first claim with a conflict."""
    scope = launch(shared, name)
    store = DescriptionStore(KubeExperiment(shared.api, scope))
    entries = [PROBLEMS]
    read, reads = store.read, []

    def read_before_supervisor():
        reads.append(read())
        while entries:
            store_entries(KubeExperiment(shared.api, scope), entries.pop())
        return reads[-1]

    monkeypatch.setattr(store, "read", read_before_supervisor)
    with store.claimed() as claimed:
        assert reads == [claimed, claimed]
        assert HOLDER in secret()["metadata"]["annotations"]
        store.write(claimed)
    assert record_in_secret(secret()).problems == PROBLEMS.problems
    shared.delete(name)


def test_a_claim_is_recognised_if_its_answer_is_lost(
    kube_cluster, kube_faults, open_cluster, name, secret, monkeypatch
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    scope = launch(cluster, name)
    store = DescriptionStore(KubeExperiment(cluster.api, scope))
    # A command that waited for itself would fail.
    monkeypatch.setattr(description, "_PAUSE_SECONDS", None)
    kube_faults.reset(method="PATCH", path="symphony-description", times=1, after=True)
    with store.claimed() as claimed:
        store.write(claimed)
        store.check_claim()
    assert HOLDER not in secret()["metadata"]["annotations"]
    cluster.delete(name)


@pytest.mark.parametrize("other", ["claims", "deletes"])
def test_a_claim_is_lost_if_another_command_claims_or_deletes(shared, name, other):
    scope = launch(shared, name)
    store, second = (
        DescriptionStore(KubeExperiment(shared.api, scope)),
        DescriptionStore(KubeExperiment(shared.api, scope)),
    )
    with store.claimed() as claimed:
        if other == "claims":
            second.read()
            second._patch({"metadata": {"annotations": {HOLDER: "another 1 0"}}})
        else:
            second.mark_deleting()
        with pytest.raises(BackendError, match="another command changes experiment"):
            store.write(claimed)
    shared.delete(name)


def test_a_claim_is_kept_if_the_answer_to_a_change_is_lost(
    kube_cluster, kube_faults, open_cluster, name, monkeypatch
):
    monkeypatch.setattr(description, "RENEW_SECONDS", 0.05)
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    scope = launch(cluster, name)
    store = DescriptionStore(KubeExperiment(cluster.api, scope))
    with store.claimed() as claimed:
        kube_faults.reset(method="PATCH", path="symphony-description", times=1, after=True)
        lost = kube_faults.count(method="PATCH", path="symphony-description") + 1
        wait_until(lambda: kube_faults.count(method="PATCH", path="symphony-description") > lost)
        kube_faults.reset(method="PATCH", path="symphony-description", times=1, after=True)
        store.write(claimed)
        store.check_claim()
    cluster.delete(name)


# --- experiments of version 0.1 ---


@pytest.fixture
def earlier(kube_cluster, shared, name, secret):
    """An experiment whose Secret is as version 0.1 has written it."""
    scope = launch(shared, name, "first", "second")
    entries = record_in_secret(secret()).annotations()
    patch = {"metadata": {"annotations": entries}, "data": {"record": None}}
    path = kube_cluster.path(f"secrets/{name}-symphony-description")
    kube_cluster.raw.call("PATCH", path, patch, MERGE_PATCH)
    return scope


def test_an_experiment_of_version_0_1_is_shown_and_deleted(kube_cluster, shared, name, earlier):
    kube_cluster.raw.call("DELETE", kube_cluster.path(f"pods/{name}-first"))
    status = shared.describe_experiment(name)
    assert [process.name for process in status] == ["first", "second"]
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}


def test_a_change_of_an_experiment_of_version_0_1_stores_the_record(shared, name, earlier, secret):
    exp = shared.new_experiment(name)
    unschedulable(exp, "first")
    shared.up(exp)
    assert [unit.name for unit in decode_roster(record_in_secret(secret()).roster)] == ["first"]
    assert ROSTER not in secret()["metadata"]["annotations"]
    assert shared.diff(exp).is_empty
    shared.delete(name)


def test_a_change_by_version_0_1_is_newer_than_the_record(kube_cluster, shared, name, secret):
    scope = launch(shared, name)
    store_entries(KubeExperiment(shared.api, scope), PROBLEMS)
    changed = record_of_change(1, (Unit(name="other", processes=("other",)),), Policies(), {}, ())
    patch = {"metadata": {"annotations": changed.annotations()}}
    path = kube_cluster.path(f"secrets/{name}-symphony-description")
    kube_cluster.raw.call("PATCH", path, patch, MERGE_PATCH)
    record = read_stored_record(KubeExperiment(shared.api, scope)).record
    assert (record.roster, record.problems) == (changed.roster, PROBLEMS.problems)
    store_entries(KubeExperiment(shared.api, scope), ending("stopped", "other"))
    assert read_stored_record(KubeExperiment(shared.api, scope)).record.roster == changed.roster
    assert ROSTER not in secret()["metadata"]["annotations"]
    shared.delete(name)


def test_entries_are_added_to_a_record_of_version_0_1(shared, earlier):
    store_entries(KubeExperiment(shared.api, earlier), PROBLEMS)
    record = read_stored_record(KubeExperiment(shared.api, earlier)).record
    assert decode_problems(record.problems).keys() == {"a"}
    assert [unit.name for unit in decode_roster(record.roster)] == ["first", "second"]


def test_a_record_of_a_later_version_is_not_changed(kube_cluster, shared, name, secret):
    scope = launch(shared, name)
    later = base64.b64encode(codec.compress('{"version":2}')).decode()
    path = kube_cluster.path(f"secrets/{name}-symphony-description")
    kube_cluster.raw.call("PATCH", path, {"data": {"record": later}}, MERGE_PATCH)
    store_entries(KubeExperiment(shared.api, scope), PROBLEMS)
    assert secret()["data"]["record"] == later
    exp = shared.new_experiment(name)
    unschedulable(exp, "other")
    with pytest.raises(BackendError, match="a later version of symphony has written it"):
        shared.up(exp)
    assert [process.name for process in shared.describe_experiment(name)] == ["worker"]
    shared.delete(name)


# --- what readers find ---


def test_the_end_of_an_experiment_is_known_without_its_first_pod(shared, name, nodes, kube_cluster):
    exp = shared.new_experiment(name, ends_with=["learner"])
    for process in ("first", "learner", "actor"):
        python(exp, process, FOREVER)
    shared.launch(exp)
    nodes.run("first", "learner", "actor")
    nodes.exit("learner", 0)
    for process in ("first", "actor"):
        wait_until(lambda process=process: nodes.is_stopped(process))
        nodes.exit(process, 143)
    shared.wait(name, timeout=60)
    kube_cluster.raw.call("DELETE", nodes.path("first"))
    actor = shared.describe_experiment(name).processes[2]
    assert (actor.displayed_state, actor.reason) == (
        "stopped",
        "the experiment ended with learner",
    )
    shared.delete(name)


def test_an_experiment_without_its_first_pod_is_stopped(shared, name, nodes, kube_cluster):
    exp = shared.new_experiment(name)
    for process in ("first", "second"):
        python(exp, process, FOREVER)
    shared.launch(exp)
    nodes.run("first", "second")
    kube_cluster.raw.call("DELETE", nodes.path("first"), {"gracePeriodSeconds": 0})
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(shared.stop, name)
        wait_until(lambda: stopping.done() or nodes.is_stopped("second"))
        nodes.exit("second", 143)
        stopping.result()
    second = shared.describe_experiment(name).processes[1]
    assert (second.displayed_state, second.reason_code) == ("stopped", ReasonCode.STOPPED)
    shared.delete(name)


def test_the_first_pod_has_the_problems_when_it_is_created_again(
    kube_cluster, kube_faults, open_cluster, name, nodes
):
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "first", FOREVER).restart_policy("Always")
    python(exp, "later", FOREVER).starts_after("first", "started")
    cluster.launch(exp)
    kube_faults.answer(403, method="POST", path="/pods")

    def later():
        return cluster.describe_experiment(name).processes[1]

    nodes.run("first")
    wait_until(lambda: later().state is State.FAILED)
    reason = later().reason
    assert "cannot create pod" in reason
    kube_faults.clear()
    kube_cluster.raw.call("DELETE", nodes.path("first"), {"gracePeriodSeconds": 0})
    nodes.await_pod("first--2")
    assert later().reason == reason
    cluster.delete(name)


def test_users_who_may_not_use_secrets_find_the_record_in_the_first_pod(
    kube_cluster, kube_faults, open_cluster, name, nodes, monkeypatch
):
    kube_faults.answer(403, path="/secrets")
    monkeypatch.setattr(error_messages, "is_forbidden", lambda exc: exc.status == 403)
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name, ends_with=["learner"])
    for process in ("first", "learner"):
        python(exp, process, FOREVER)
    cluster.launch(exp)
    nodes.run("first", "learner")
    nodes.exit("learner", 0)
    wait_until(lambda: nodes.is_stopped("first"))
    nodes.exit("first", 143)
    cluster.wait(name, timeout=60)
    annotations = nodes.find("first")["metadata"]["annotations"]
    assert {ROSTER, POLICIES, ENDING} <= annotations.keys()
    assert record_in(annotations).ending
    first = cluster.describe_experiment(name).processes[0]
    assert first.reason == "the experiment ended with learner"
    kube_faults.clear()
    cluster.delete(name)
