"""What a cluster must have, so that the objects of an experiment work on it."""

from __future__ import annotations

from typing import Any

import pytest

from symphony import Cluster
from symphony.errors import LaunchFailed
from symphony_kube.api.labels import QUEUE
from symphony_kube.lifecycle.requirements import check_requirements

WAITING_POD = {"kind": "Pod", "metadata": {"name": "unit-0", "labels": {QUEUE: "team-a"}}}


JOB_SETS, KUEUE = "/apis/jobset.x-k8s.io/v1alpha2", "/apis/kueue.x-k8s.io"


class OfVersion:
    """An API server that reports a version and does nothing else."""

    def __init__(self, minor: str) -> None:
        self._minor = minor

    def call(self, method: str, path: str) -> dict[str, Any]:
        assert (method, path) == ("GET", "/version")
        return {"major": "1", "minor": self._minor}


def test_a_cluster_without_scheduling_gates_refuses_a_queue() -> None:
    message = r"pod 'unit-0' would not wait for queue 'team-a', because the cluster has Kub.* 1\.26"
    with pytest.raises(LaunchFailed, match=message):
        check_requirements(OfVersion("26+"), [WAITING_POD])
    check_requirements(OfVersion("27"), [WAITING_POD])


class WithSchemas:
    """An API server that publishes the schemas of JobSets and of the Workloads of Kueue.

    ``requests`` contains the paths that were read. A limit that is None is not in the schema.
    """

    def __init__(self, *, jobs: int | None, pod_sets: int | None) -> None:
        self.requests: list[str] = []
        self._answers = {
            JOB_SETS: {"resources": [{"name": "jobsets"}]},
            KUEUE: {"preferredVersion": {"version": "v1beta9"}},
            "/version": {"major": "1", "minor": "37"},
            f"/openapi/v3{JOB_SETS}": _document("JobSet", "replicatedJobs", jobs),
            f"/openapi/v3{KUEUE}/v1beta9": _document("Workload", "podSets", pod_sets),
        }

    def call(self, _: str, path: str) -> dict[str, Any]:
        self.requests.append(path)
        return self._answers[path]

    def find(self, path: str) -> dict[str, Any] | None:
        self.requests.append(path)
        return self._answers.get(path)


def _document(kind: str, field: str, limit: int | None) -> dict[str, Any]:
    items = {"type": "array"} if limit is None else {"type": "array", "maxItems": limit}
    spec = {"properties": {field: items}}
    schema = {
        "x-kubernetes-group-version-kind": [{"kind": kind}],
        "properties": {"spec": spec},
    }
    return {"components": {"schemas": {"other": {}, "wanted": schema}}}


def job_set(jobs: int, *, queue: bool = True) -> dict[str, Any]:
    labels = {QUEUE: "team-a"} if queue else {}
    spec = {"replicatedJobs": [{"name": f"rank-{number}"} for number in range(jobs)]}
    return {"kind": "JobSet", "metadata": {"name": "e-train", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("server", "body", "message"),
    [
        (
            WithSchemas(jobs=None, pod_sets=8),
            job_set(9),
            "jobset 'e-train' has 9 Pods, and Kueue admits at most 8 in a JobSet: set per_pod, or "
            "remove jobset, because Kueue admits any number of ranks without it",
        ),
        (WithSchemas(jobs=None, pod_sets=8), job_set(9, queue=False), None),
        (WithSchemas(jobs=None, pod_sets=16), job_set(16), None),
        (WithSchemas(jobs=None, pod_sets=None), job_set(40), None),
        (
            WithSchemas(jobs=20, pod_sets=8),
            job_set(21, queue=False),
            "jobset 'e-train' has 21 Pods, and its controller accepts at most 20 in a JobSet: set "
            "per_pod",
        ),
    ],
)
def test_the_schemas_of_the_cluster_limit_the_jobs_of_a_job_set(
    server: WithSchemas, body: dict[str, Any], message: str | None
) -> None:
    if message is None:
        check_requirements(server, [body])
        return
    with pytest.raises(LaunchFailed) as caught:
        check_requirements(server, [body])
    assert str(caught.value) == message


def test_schemas_are_read_only_for_many_jobs() -> None:
    server = WithSchemas(jobs=None, pod_sets=8)
    check_requirements(server, [job_set(8), WAITING_POD])
    assert set(server.requests) == {JOB_SETS, "/version"}


def test_a_cluster_without_schemas_predicts_no_refusal() -> None:
    server = WithSchemas(jobs=None, pod_sets=8)
    for path in list(server._answers):
        if path.startswith("/openapi"):
            del server._answers[path]
    check_requirements(server, [job_set(40)])


def queued_ranks(number: int, *, differ: bool) -> list[Any]:
    """Return the Pods of ranks that wait in a queue, each with a port of its own if they differ."""
    cluster = Cluster.new("kube", namespace="n", image="i")
    experiment = cluster.new_experiment("e")
    for index, rank in enumerate(experiment.new_ranks("train", number, command=["true"])):
        rank.queue("team-a")
        if differ:
            rank.binds(f"of-{index}")
    return list(cluster.manifest(experiment).units)


def test_the_schema_of_kueue_limits_the_kinds_of_pods_in_a_group() -> None:
    pods = queued_ranks(9, differ=True)
    with pytest.raises(LaunchFailed) as caught:
        check_requirements(WithSchemas(jobs=None, pod_sets=8), pods)
    assert str(caught.value) == (
        "the ranks of 'e-train' have 9 different kinds of Pods, and Kueue admits at most 8 "
        "together: give them the same resources, ports and rules for nodes, or remove queue"
    )
    for limit in (9, None):
        check_requirements(WithSchemas(jobs=None, pod_sets=limit), pods)
    for alike in (queued_ranks(8, differ=True), queued_ranks(40, differ=False)):
        server = WithSchemas(jobs=None, pod_sets=8)
        check_requirements(server, alike)
        assert set(server.requests) == {"/version"}
