"""Changes on a real server: Jobs of a user with few rights, and variables in containers."""

import pytest

from tests.backends.kube.conftest import FOREVER, managed_objects, python, wait_until

RIGHTS_FOR_JOBS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"]},
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["create", "get", "list", "watch", "patch", "delete"],
    },
]


@pytest.mark.timeout(300)  # Each change starts Pods, which takes some time on a busy machine.
def test_pods_become_jobs_and_the_other_way_round(kube_cluster, shared, open_cluster, name):
    """The changes are made by a user who may create Jobs, but neither Pods nor Services."""
    user = str(kube_cluster.user("someone", RIGHTS_FOR_JOBS))
    jobs_only = open_cluster(kubeconfig=user, namespace=kube_cluster.namespace, jobs_only=True)

    def describe(*names, job=False):
        experiment = shared.new_experiment(name)
        for each in names:
            process = python(experiment, each, f"print('up'); {FOREVER}")
            if job:
                process.job()
        return experiment

    shared.launch(describe("one"))
    shared.wait(name, until="started", timeout=90)
    changes = jobs_only.up(describe("one", "two"))
    assert (changes.names("restarted"), changes.names("added")) == (["one"], ["two"])
    assert changes.processes[0].reasons == ("its Pod will belong to a Job",)
    assert managed_objects(kube_cluster)["jobs"] == [f"{name}-one--2", f"{name}-two"]
    status = jobs_only.wait(name, until="started", timeout=90)
    assert [process.restarts for process in status] == [1, 0]
    assert jobs_only.up(describe("one")).names("removed") == ["two"]
    assert jobs_only.diff(describe("one")).is_empty
    # The Job of the removed process is kept because of its log.
    assert managed_objects(kube_cluster)["jobs"] == [f"{name}-one--2", f"{name}-two"]
    assert jobs_only.removed_processes(name) == ["two"]
    # The option and the setting have the same effect.
    assert shared.diff(describe("one", job=True)).is_empty
    # The option of the latest change is kept.
    assert shared.diff(describe("one")).is_empty
    pods = shared.without_kept_options()
    changes = pods.up(describe("one"))
    assert changes.processes[0].reasons == ("its Pod no longer belongs to a Job",)
    assert shared.diff(describe("one")).is_empty
    wait_until(lambda: shared.get_log(name, "one") == "up\n" * 3)
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}


def test_variables_in_a_config_map_are_changed(shared, name, monkeypatch):
    monkeypatch.setattr("symphony_kube.render.shared_variables.MAX_LISTED_BYTES", 0)

    def describe(*services):
        experiment = shared.new_experiment(name)
        for service in services:
            python(experiment, service, FOREVER).binds(service)
        return experiment

    shared.up(describe("web"))
    assert shared.wait(name, until="started", timeout=60)
    assert shared.explain_process(name, "web").addresses == {"web": f"{name}-web:7000"}
    assert shared.up(describe("web", "store")).names("added") == ["store"]
    shared.wait(name, until="started", timeout=60)
    command = ["sh", "-c", "echo $SYMPHONY_ROLE $SYMPH_WEB_ADDR $SYMPH_STORE_ADDR"]
    answer = f"{name}-web:7000 {name}-store:7001"
    assert shared.exec_command(name, "store", command).stdout == f"store {answer}\n"
    services = shared.describe_topology(name).services
    assert {service.name for service in services} == {"web", "store"}
    shared.delete(name)
