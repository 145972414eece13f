"""Why a Pod that is being set up does not get on, as the events of its node tell."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from symphony.status import ExperimentStatus, State
from symphony_kube.status.pod_events import setup_problem

from .conftest import FOREVER, python, until

Object = dict[str, Any]

SECRET = 'MountVolume.SetUp failed for volume "secret-60179e3a" : secret "nosuch" not found'
LATE = (
    "Unable to attach or mount volumes: unmounted volumes=[x]: timed out waiting for the condition"
)
NFS = """MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32
Mounting command: mount
Mounting arguments: -t nfs 127.0.0.1:/x /var/lib/kubelet/pods/c0d301c7-6e82-443d-9f64-b3c4476952ce/volumes/nfs
Output: mount.nfs: Connection refused"""


def event(
    message: str, second: int, reason: str = "FailedMount", kind: str = "Warning", uid: str = "u"
) -> dict[str, Any]:
    when = f"2026-01-01T00:00:{second:02d}Z"
    return {
        "involvedObject": {"uid": uid},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": when,
        "metadata": {},
    }


SCHEDULED = event("assigned", 1, "Scheduled", "Normal")


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], ""),
        ([SCHEDULED], ""),
        ([event(SECRET, 5), SCHEDULED], 'FailedMount: secret "nosuch" not found'),
        ([SCHEDULED, event(SECRET, 5), event(LATE, 9)], 'FailedMount: secret "nosuch" not found'),
        ([SCHEDULED, event(NFS, 5)], "FailedMount: mount.nfs: Connection refused"),
        ([SCHEDULED, event(SECRET, 5), event("Pulling image", 7, "Pulling", "Normal")], ""),
        ([SCHEDULED, event(SECRET, 5, uid="other")], ""),
        ([SCHEDULED, event("DNS may be wrong", 5, "DNSConfigForming")], ""),
        ([event("no CNI", 5, "FailedCreatePodSandBox")], "FailedCreatePodSandBox: no CNI"),
    ],
)
def test_what_the_last_warnings_say(events: list[Object], said: str) -> None:
    assert str(setup_problem("u", events)) == said


def test_a_late_volume_of_which_no_more_is_known_is_told_so() -> None:
    assert str(setup_problem("u", [event(LATE, 5)])).startswith(
        "FailedMount: Unable to attach or mount volumes"
    )


@pytest.mark.client
def test_a_secret_that_is_not_there_becomes_the_reason(
    kube_cluster, kube_faults, open_cluster, name, monkeypatch
):
    monkeypatch.setattr("symphony_kube.status.pod_events.SLOW_SETUP_SECONDS", -60.0)
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "one", FOREVER).mount_secret("nosuch", "/x")
    python(exp, "two", FOREVER).mount_config("nosuch-either", "/x")
    cluster.launch(exp)

    def reasons():
        found = cluster.describe_experiment(name)
        assert all(process.state is State.PENDING for process in found)
        words = [process.reason for process in found]
        return words if all(word.endswith("not found") for word in words) else None

    assert until(reasons) == [
        'FailedMount: secret "nosuch" not found',
        'FailedMount: configmap "nosuch-either" not found',
    ]
    kube_faults.answer(403, path="/events")
    assert [process.reason for process in cluster.describe_experiment(name)] == [
        "ContainerCreating"
    ] * 2
    kube_faults.clear()
    with monkeypatch.context() as often:
        often.setattr("symphony_kube.status.pod_events.SLOW_SETUP_SECONDS", 0.1)
        told: list[ExperimentStatus] = []
        with pytest.raises(TimeoutError):
            cluster.wait(name, until="started", timeout=2, on_change=told.append)
        assert all(before != after for before, after in itertools.pairwise(told))
    monkeypatch.setattr("symphony_kube.status.pod_events.SLOW_SETUP_SECONDS", 3600.0)
    before = kube_faults.count()
    assert [process.reason for process in cluster.describe_experiment(name)] == [
        "ContainerCreating"
    ] * 2
    assert kube_faults.count() - before == 1


@pytest.mark.client
def test_who_waits_is_told_it_too_though_nothing_changes(shared, name, monkeypatch):
    monkeypatch.setattr("symphony_kube.status.pod_events.SLOW_SETUP_SECONDS", 0.5)
    exp = shared.new_experiment(name)
    python(exp, "one", FOREVER).mount_secret("nosuch", "/x")
    shared.launch(exp)

    class Told(Exception):
        pass

    def hear(now):
        if now.processes[0].reason == 'FailedMount: secret "nosuch" not found':
            raise Told

    with pytest.raises(Told):
        shared.wait(name, until="started", timeout=60, on_change=hear)
    with pytest.raises(TimeoutError, match="is not started after 1 s"):
        shared.wait(name, until="started", timeout=1)
