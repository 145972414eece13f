"""The reason of a Pod whose setup makes no progress, from the events of its node."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from symphony.status import ExperimentStatus, ReasonCode, State
from symphony_kube.status.event_sources.pod_events import setup_problem
from tests.backends.kube.conftest import FOREVER, python, wait_until

Object = dict[str, Any]

SECRET = 'MountVolume.SetUp failed for volume "secret-60179e3a" : secret "nosuch" not found'
LATE = (
    "Unable to attach or mount volumes: unmounted volumes=[x]: timed out waiting for the condition"
)
NFS = """MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32
Mounting command: mount
Mounting arguments: -t nfs 127.0.0.1:/x /var/lib/kubelet/pods/c0d301c7/volumes/nfs
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


MISSING_SECRET = 'FailedMount: secret "nosuch" not found'


@pytest.mark.parametrize(
    ("events", "code", "reason"),
    [
        ([], None, ""),
        ([SCHEDULED], None, ""),
        ([event(SECRET, 5), SCHEDULED], ReasonCode.MOUNT_FAILED, MISSING_SECRET),
        ([SCHEDULED, event(SECRET, 5), event(LATE, 9)], ReasonCode.MOUNT_FAILED, MISSING_SECRET),
        ([event(LATE, 5)], ReasonCode.MOUNT_FAILED, f"FailedMount: {LATE}"),
        (
            [SCHEDULED, event(NFS, 5)],
            ReasonCode.MOUNT_FAILED,
            "FailedMount: mount.nfs: Connection refused",
        ),
        ([SCHEDULED, event(SECRET, 5), event("Pulling image", 7, "Pulling", "Normal")], None, ""),
        ([SCHEDULED, event(SECRET, 5, uid="other")], None, ""),
        ([SCHEDULED, event("DNS may be wrong", 5, "DNSConfigForming")], None, ""),
        (
            [event("no CNI", 5, "FailedCreatePodSandBox")],
            ReasonCode.CREATING,
            "FailedCreatePodSandBox: no CNI",
        ),
    ],
)
def test_setup_problem(events: list[Object], code: ReasonCode | None, reason: str) -> None:
    found = setup_problem("u", events)
    assert (found.code, found.text) == (code, reason)


def test_missing_volume_is_reported(kube_cluster, kube_faults, open_cluster, name, monkeypatch):
    def explain_setup_after(seconds: float) -> None:
        monkeypatch.setattr(
            "symphony_kube.status.event_sources.pod_events.SLOW_SETUP_SECONDS", seconds
        )

    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "one", FOREVER).mount_secret("nosuch", "/x")
    python(exp, "two", FOREVER).mount_config("nosuch-either", "/x")
    cluster.launch(exp)

    def reasons() -> list[str]:
        status = cluster.describe_experiment(name)
        assert all(process.state is State.PENDING for process in status)
        return [process.reason for process in status]

    explain_setup_after(-60.0)
    expected = [MISSING_SECRET, 'FailedMount: configmap "nosuch-either" not found']
    wait_until(lambda: reasons() == expected)
    kube_faults.answer(403, path="/events")
    assert reasons() == ["ContainerCreating"] * 2
    kube_faults.clear()

    # The Pods do not change, and their events are read while the caller waits.
    explain_setup_after(0.1)
    reported: list[ExperimentStatus] = []
    with pytest.raises(TimeoutError, match="is not started after 2 s"):
        cluster.wait(name, until="started", timeout=2, on_change=reported.append)
    assert [process.reason for process in reported[-1]] == expected
    assert all(before != after for before, after in itertools.pairwise(reported))

    # No events are read while the setup takes no longer than usual.
    explain_setup_after(3600.0)
    before = kube_faults.count()
    assert reasons() == ["ContainerCreating"] * 2
    assert kube_faults.count() - before == 1
