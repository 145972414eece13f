"""What the deletion of a namespace waits for, with answers that a healthy cluster does not give."""

import pytest

from symphony.errors import BackendError
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import POD_GROUP, Scope
from symphony_kube.lifecycle import delete
from symphony_kube.lifecycle.queued_groups import group_of, release_groups

SCOPE = Scope(experiment="e", namespace="e", shared=False)
STALE = {
    "type": "NamespaceDeletionDiscoveryFailure",
    "status": "True",
    "message": "Discovery failed for some groups, 1 failing: visibility.kueue.x-k8s.io/v1beta1",
}


class Server:
    """An API server in which the namespace ``e`` is being deleted.

    It has the condition ``STALE`` in the first ``stale`` answers, and is gone after ``answers``.
    """

    connections = 2

    def __init__(self, *, stale=0, answers=100, pods=(), kueue=None):
        self.stale, self.answers, self.pods, self.kueue = stale, answers, pods, kueue
        self.reads = 0
        self.deleted = []

    def find(self, path):
        if "workloads" in path:
            name = path.rpartition("/")[2]
            owners = [{"kind": "Pod", "uid": f"pod-of-{name}"}]
            return {"metadata": {"uid": f"uid-{name}", "ownerReferences": owners}}
        assert path == "/api/v1/namespaces/e"
        self.reads += 1
        conditions = [STALE] if self.reads <= self.stale else []
        return {"status": {"conditions": conditions}}

    def call(self, method, path, **options):
        if method == "DELETE":
            uid = options["body"].get("preconditions", {}).get("uid")
            self.deleted.append((path, uid))
            return {}
        if path == "/apis/kueue.x-k8s.io":
            if self.kueue is None:
                raise ApiError("not found", status=404)
            return {"preferredVersion": {"version": self.kueue}}
        if path == "/api/v1/namespaces":
            remains = self.reads < self.answers
            items = [{"metadata": {"name": "e", "uid": "1"}}] if remains else []
        else:
            items = list(self.pods)
            self.pods = ()
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    call_without_answer = call

    def watch(self, *_arguments, **_options):
        raise ApiError("try again", status=500)


def test_api_of_another_program_that_does_not_answer_is_named_at_once(monkeypatch):
    monkeypatch.setattr(delete, "DISCOVERY_SECONDS", 0.01)
    server = Server(stale=100)
    with pytest.raises(BackendError, match=r"its Pods are gone, but.*visibility\.kueue\.x-k8s\.io"):
        delete.finish_namespace(KubeExperiment(server, SCOPE), "1")
    assert server.reads == 2


def test_short_failure_of_an_api_of_another_program_is_tolerated(monkeypatch):
    monkeypatch.setattr(delete, "DISCOVERY_SECONDS", 0.01)
    delete.finish_namespace(KubeExperiment(Server(stale=1, answers=3), SCOPE), "1")


@pytest.mark.parametrize(("kueue", "version"), [("v1beta2", "v1beta2"), (None, "v1beta1")])
def test_workloads_of_groups_are_deleted(kueue, version):
    server = Server(kueue=kueue)
    release_groups(
        KubeExperiment(server, SCOPE), {"1": "a", "pod-of-a": "a", "pod-of-b": "b", "2": ""}
    )
    path = f"/apis/kueue.x-k8s.io/{version}/namespaces/e/workloads"
    assert sorted(server.deleted) == [(f"{path}/a", "uid-a"), (f"{path}/b", "uid-b")]


def test_workload_of_another_group_with_the_same_name_is_not_deleted():
    server = Server(kueue="v1beta2")
    release_groups(KubeExperiment(server, SCOPE), {"1": "a"})
    assert server.deleted == []


def test_group_of_a_pod():
    assert group_of({"metadata": {"labels": {POD_GROUP: "a"}}}) == "a"


def test_kueue_is_not_asked_without_groups():
    server = Server(kueue="v1beta2")
    release_groups(KubeExperiment(server, SCOPE), {"1": group_of({"metadata": {"labels": {}}})})
    assert not server.deleted
