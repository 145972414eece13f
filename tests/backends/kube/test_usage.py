"""The resource use of processes, with a response that stands in for a metrics server."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from symphony.errors import Unsupported
from symphony.usage import ProcessUsage
from symphony_kube.status.usage import UNAVAILABLE, usage_of

from .conftest import FOREVER, python


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


def test_one_list_contains_the_metrics_of_an_experiment(
    kube_cluster, kube_faults, open_cluster, name
) -> None:
    cluster = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    exp = cluster.new_experiment(name)
    python(exp, "a", FOREVER)
    cluster.launch(exp)
    with pytest.raises(Unsupported, match=r"the cluster serves no metrics \(metrics\.k8s\.io\)"):
        cluster.iter_usage(name)
    kube_faults.respond({"items": [metrics(a=("250m", "3Mi"))]}, path=r"/metrics\.k8s\.io/")
    samples = cluster.iter_usage(name, ["a"])
    assert next(samples).processes == (ProcessUsage(process="a", cpu=0.25, memory=3 << 20),)
    *_, call = kube_faults.calls(path=r"/metrics\.k8s\.io/")
    selector = parse_qs(urlsplit(call.path).query)["labelSelector"][0]
    pods = kube_cluster.raw.call("GET", f"{kube_cluster.path('pods')}?labelSelector={selector}")
    assert [pod["metadata"]["labels"]["symphony/unit"] for pod in pods["items"]] == ["a"]
    cluster.delete(name)
    assert list(samples) == []
