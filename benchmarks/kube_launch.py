"""Measure how long it takes to launch many Pods.

The peer is ``kubectl create -f`` with the same objects.

    python benchmarks/kube_launch.py [--quick] [--json]

The first figure is the time until 500 Pods and 11 Services are created. The second figure is the
time until 1,000 Pods are running. For the second figure, kubectl creates the Pods and repeatedly
lists the Pods that are not running yet (``kubectl wait`` queries each Pod and takes longer). The
Pods are hollow: a real API server, scheduler and controllers handle them, but no container runs.
For the third figure, a proxy counts the requests of a launch. Each launch uses a new namespace that
already accepts Pods, because kubectl does not wait until a new namespace accepts Pods. The
benchmark needs kubectl and a Kubernetes cluster that exists only for tests, because the benchmark
adds nodes to the cluster. The benchmark uses the cluster in KUBECONFIG, or else the devcluster.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from _kube import STARTED, hollow, hollow_nodes, kubeconfig, kubectl, new_namespace
from _pairs import Figure, Options, at_most, at_most_times, in_turns, main, timed

from kubetest.faults import FaultProxy
from kubetest.rawapi import RawApi, access
from symphony import Cluster, Experiment

# The number of requests that do not create objects: one request lists the existing objects, and one
# request checks for other launches.
BESIDES = 2
NOT_RUNNING = "status.phase!=Running"


class Bench:
    """Launches with symphony or kubectl, each in a new namespace."""

    def __init__(self, config: Path, scratch: Path) -> None:
        self._config = config
        self._scratch = scratch
        self._raw = RawApi(access(config))
        self._kubectl = [kubectl(), f"--kubeconfig={config}"]

    def namespace(self) -> AbstractContextManager[str]:
        """Return a context manager that yields a new namespace, which exists until its end."""
        return new_namespace(self._raw)

    def symphony(self, exp: Experiment, *, until_running: bool = False) -> float:
        """Return the duration, in seconds, of a launch with symphony.

        If ``until_running`` is true, include the time until all Pods are running.
        """
        with self.namespace() as namespace:
            cluster = Cluster.new("kube", kubeconfig=self._config, namespace=namespace)

            def launch() -> None:
                cluster.launch(exp)
                if until_running:
                    cluster.wait(exp.name, until=STARTED, timeout=600)

            return timed(launch)

    def kubectl(self, exp: Experiment, *, until_running: bool = False) -> float:
        """Return the time, in seconds, that kubectl takes to create an experiment's objects.

        If ``until_running`` is true, include the time until all Pods are running.
        """
        with self.namespace() as namespace:
            cluster = Cluster.new("kube", kubeconfig=self._config, namespace=namespace)
            path = self._scratch / f"{namespace}.yaml"
            path.write_text(str(cluster.manifest(exp)))
            asked = [*self._kubectl, f"--namespace={namespace}"]

            def launch() -> None:
                _output(*asked, "create", "-f", str(path))
                while until_running and _output(
                    *asked, "get", "pods", "-o=name", "--field-selector=status.phase!=Running"
                ):
                    pass

            return timed(launch)

    def calls(self, exp: Experiment) -> tuple[int, int]:
        """Return the number of requests that one launch sends, and the number of objects that it
        creates.
        """
        with (
            self.namespace() as namespace,
            FaultProxy(self._config, scratch=self._scratch) as proxy,
        ):
            cluster = Cluster.new("kube", kubeconfig=proxy.kubeconfig, namespace=namespace)
            manifest = cluster.launch(exp)
            return proxy.count(), len(list(manifest))


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures for the creation of Pods, the start of Pods, and the number of requests."""
    config, runs = kubeconfig(), options.pick(4, 2)
    exp = hollow("bench", options.pick(500, 50), services=11)
    many = hollow("bench", options.pick(1000, 100))
    with tempfile.TemporaryDirectory() as scratch, hollow_nodes(config, count=4):
        bench = Bench(config, Path(scratch))
        in_turns(1, lambda: bench.symphony(exp), lambda: bench.kubectl(exp))
        ours, theirs = in_turns(runs, lambda: bench.symphony(exp), lambda: bench.kubectl(exp))
        what = f"launch, {len(exp.list_all_processes())} Pods, 11 Services"
        yield at_most_times(what, ours, theirs, 1.0, peer_name="kubectl create -f")
        ours, theirs = in_turns(
            2,
            lambda: bench.symphony(many, until_running=True),
            lambda: bench.kubectl(many, until_running=True),
        )
        what = f"launch, {len(many.list_all_processes())} Pods, until all run"
        yield at_most_times(what, ours, theirs, 1.0, peer_name="kubectl create, get")
        calls, objects = bench.calls(exp)
        yield at_most(
            "launch, calls",
            "calls",
            [calls],
            objects + BESIDES,
            note=f"{objects} objects are created",
        )


if __name__ == "__main__":
    main(__doc__, measure)
