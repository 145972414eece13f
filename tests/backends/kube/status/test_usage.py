"""The resource use of processes, with a response that stands in for a metrics server."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from typing import Any

from kubetest.faults import FaultProxy
from symphony import Experiment
from symphony.usage import ProcessUsage
from symphony_kube.api.client import Api
from symphony_kube.lifecycle.supervisor import in_cluster
from symphony_kube.lifecycle.supervisor.loop import supervise
from symphony_kube.status.metrics_server import UNAVAILABLE, usage_of
from tests.backends.kube.conftest import (
    FOREVER,
    cpu_of,
    managed_objects,
    metrics,
    python,
    run_of,
    served,
    wait_until,
)


def test_quantities_are_converted() -> None:
    pods = [metrics(a=("1250637812n", "12Mi"), sidecar=("1", "1Gi")), metrics(b=("0", "937Ki"))]
    sample = usage_of(pods, ["a", "b", "not-measured"], 5.0)
    assert sample.processes == (
        ProcessUsage(process="a", cpu=1.250637812, memory=12 << 20),
        ProcessUsage(process="b", cpu=0.0, memory=937 << 10),
    )
    assert sample.unavailable == UNAVAILABLE
    assert usage_of([{"metadata": {}}], ["a"], 5.0).processes == ()


def test_a_supervisor_in_the_cluster_records_with_the_rights_of_its_role(
    kube_cluster, open_cluster, name, tmp_path, monkeypatch
) -> None:
    """The supervisor runs in this process, as the user for whom the Job would run it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(in_cluster, "render_job", without_pods(in_cluster.render_job))
    monkeypatch.setattr(in_cluster, "_wait_until_running", lambda *_: "supervised")
    cluster = open_cluster(namespace=kube_cluster.namespace, supervisor_image=kube_cluster.image)

    def experiment(**policies: Any) -> Experiment:
        exp = cluster.new_experiment(name, deadline="6h", **policies)
        python(exp, "a", FOREVER)
        return exp

    cluster.launch(experiment())
    supervisor = f"{name}-symphony-supervisor"
    role = kube_cluster.path(f"roles/{supervisor}", group="apis/rbac.authorization.k8s.io/v1")
    assert "metrics" not in str(kube_cluster.raw.call("GET", role))
    kubeconfig = kube_cluster.user_of_account(supervisor)
    errors: list[str] = []
    with FaultProxy(kubeconfig, scratch=tmp_path) as proxy:
        pods = served(metrics(a=("250m", "3Mi")))
        proxy.respond(pods, path=r"/metrics\.k8s\.io/")
        api = Api(kubeconfig=str(proxy.kubeconfig))
        store = in_cluster.SecretStore(api, kube_cluster.namespace, supervisor)
        run, owner = store.load()
        thread = threading.Thread(
            target=supervise,
            args=(api, run, store),
            kwargs={"owner": owner, "on_error": errors.append},
        )
        thread.start()
        changes = cluster.up(experiment(record_usage=True))
        assert changes.lines() == ["update the experiment: record_usage set to True"]
        assert changes.notes[-1].startswith("the resource use is not recorded: the cluster serves")
        wait_until(lambda: cluster.recorded_usage(name))
        metrics_rule = {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]}
        assert metrics_rule in kube_cluster.raw.call("GET", role)["rules"]
        cluster.delete(name)
        thread.join(60)
        assert not thread.is_alive(), errors
    assert errors == []
    archived = run_of(cluster, name)
    assert cpu_of(cluster.at_run(archived).recorded_usage(name)) == [0.25]
    assert managed_objects(kube_cluster) == {}


def without_pods(render_job: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that renders the Job of a supervisor without Pods."""

    def render(*arguments: Any) -> Any:
        job = render_job(*arguments)
        return {**job, "spec": {**job["spec"], "parallelism": 0}}

    return render
