"""The resource use of processes, with a response that stands in for a metrics server."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kubetest.faults import FaultProxy
from symphony import Cluster, Experiment
from symphony.cluster.run_results import find_run_usage
from symphony.errors import Unsupported
from symphony.runs.archive import Run
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony_kube.api.client import Api
from symphony_kube.lifecycle.supervisor import in_cluster
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.lifecycle.supervisor.loop import supervise
from symphony_kube.status.usage import UNAVAILABLE, usage_of

from .conftest import FOREVER, managed_objects, python, wait_until


def metrics(**containers: tuple[str, str]) -> dict[str, object]:
    """The metrics of one Pod with these containers, each with its CPU and its memory."""
    usages = [
        {"name": name.replace("_", "-"), "usage": {"cpu": cpu, "memory": memory}}
        for name, (cpu, memory) in containers.items()
    ]
    return {"metadata": {"name": "pod"}, "timestamp": "2026-11-26T19:00:00Z", "containers": usages}


def test_quantities_are_converted() -> None:
    pods = [metrics(a=("1250637812n", "12Mi"), sidecar=("1", "1Gi")), metrics(b=("0", "937Ki"))]
    sample = usage_of(pods, ["a", "b", "not-measured"], 5.0)
    assert sample.processes == (
        ProcessUsage(process="a", cpu=1.250637812, memory=12 << 20),
        ProcessUsage(process="b", cpu=0.0, memory=937 << 10),
    )
    assert sample.unavailable == UNAVAILABLE
    assert usage_of([{"metadata": {}}], ["a"], 5.0).processes == ()


def served(*pods: dict[str, object], second: int = 0) -> dict[str, object]:
    """The answer of a metrics server that has measured Pods at a second of a certain minute."""
    at = f"2026-11-26T19:00:{second:02}Z"
    return {"items": [{**pod, "timestamp": at} for pod in pods]}


def cpu_of(samples: Sequence[ExperimentUsage]) -> list[float | None]:
    """The use of the CPU by the first process in each sample."""
    return [sample.processes[0].cpu for sample in samples]


def run_of(cluster: Cluster, name: str) -> Run:
    (run,) = [run for run in cluster.list_runs() if run.experiment == name]
    return run


def test_the_metrics_of_an_experiment_are_shown_and_recorded(
    kube_cluster, kube_faults, open_cluster, shared, name
) -> None:
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)

    def serve(cpu: str, second: int) -> None:
        kube_faults.clear()
        pods = served(metrics(a=(cpu, "3Mi")), second=second)
        kube_faults.respond(pods, path=r"/metrics\.k8s\.io/")

    def recorded(count: int) -> list[ExperimentUsage] | None:
        samples = cluster.recorded_usage(name)
        return samples if len(samples) == count else None

    exp = cluster.new_experiment(name, record_usage=True)
    python(exp, "a", FOREVER)
    assert cluster.manifest(exp).ignored == ()
    serve("250m", second=0)
    (note,) = cluster.launch(exp).notes
    assert note.startswith("the experiment is supervised by process")
    with pytest.raises(Unsupported, match=r"the cluster serves no metrics \(metrics\.k8s\.io\)"):
        shared.iter_usage(name)
    samples = cluster.iter_usage(name, ["a"])
    assert next(samples).processes == (ProcessUsage(process="a", cpu=0.25, memory=3 << 20),)
    *_, call = kube_faults.calls(path=r"/metrics\.k8s\.io/")
    selector = parse_qs(urlsplit(call.path).query)["labelSelector"][0]
    pods = kube_cluster.raw.call("GET", f"{kube_cluster.path('pods')}?labelSelector={selector}")
    assert [pod["metadata"]["labels"]["symphony/unit"] for pod in pods["items"]] == ["a"]

    # The next supervisor continues, and does not record the same value again.
    wait_until(lambda: recorded(1))
    pid = directory_of(cluster.api, cluster.scope(name)).holder()
    supervisor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([supervisor], [], [])
    os.close(supervisor)
    serve("750m", second=15)
    assert cpu_of(wait_until(lambda: recorded(2))) == [0.25, 0.75]
    run = run_of(cluster, name)
    assert find_run_usage(cluster, run).summary["a"]["cpu"].to_dict() == {
        "mean": 0.5,
        "peak": 0.75,
        "samples": 2,
    }
    cluster.delete(name)
    assert list(samples) == []
    run = run_of(cluster, name)
    assert run.is_archived
    assert cpu_of(cluster.at_run(run).recorded_usage(name)) == [0.25, 0.75]


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
        assert changes.lines() == ["update   the experiment: record_usage set to True"]
        assert changes.notes[-1].startswith("the resource use is not recorded: the cluster serves")
        wait_until(lambda: cluster.recorded_usage(name))
        metrics_rule = {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]}
        assert metrics_rule in kube_cluster.raw.call("GET", role)["rules"]
        cluster.delete(name)
        thread.join(60)
        assert not thread.is_alive()
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
