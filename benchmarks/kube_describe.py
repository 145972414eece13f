"""Measure how long it takes to read the status of a thousand Pods.

The peer is ``kubectl get pods -o json``.

    python benchmarks/kube_describe.py [--quick] [--json]

The Pods are hollow: a real API server, scheduler and controllers handle them, but no container
runs. One launch creates the Pods in a new namespace, which is deleted at the end. The benchmark
needs kubectl and a Kubernetes cluster that exists only for tests, because the benchmark adds nodes
to the cluster. If KUBECONFIG is set, the benchmark uses the cluster that it selects. Otherwise, the
benchmark uses the devcluster.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from _kube import STARTED, hollow, hollow_nodes, kubeconfig, kubectl
from _pairs import Figure, Options, at_most_times, in_turns, main, timed

from symphony import Cluster

TIMES = 1.2


@contextlib.contextmanager
def launched(config: Path, count: int) -> Iterator[tuple[Cluster, str]]:
    """Yield a cluster and the name of an experiment in which all Pods are reported as running."""
    name = f"symphony-bench-{secrets.token_hex(3)}"
    cluster = Cluster.new("kube", kubeconfig=config)
    with hollow_nodes(config, count=4):
        try:
            cluster.launch(hollow(name, count))
            cluster.wait(name, until=STARTED, timeout=600)
            yield cluster, name
        finally:
            cluster.delete(name)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures for the library in a running program, and for the command line.

    The figure for the command line includes the start of Python.
    """
    config, count, runs = kubeconfig(), options.pick(1000, 100), options.pick(11, 3)
    with launched(config, count) as (cluster, name):
        theirs = [
            kubectl(),
            f"--kubeconfig={config}",
            "get",
            "pods",
            "-o",
            "json",
            f"--namespace={name}",
        ]
        ours = [
            sys.executable,
            "-m",
            "symphony",
            "ps",
            name,
            "-b",
            "kube",
            "--json",
            f"--kubeconfig={config}",
        ]

        def library() -> float:
            return timed(lambda: cluster.describe_experiment(name))

        def command(*words: str) -> float:
            return timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))

        in_turns(1, library, lambda: command(*ours), lambda: command(*theirs))
        library_s, command_s, kubectl_s = in_turns(
            runs, library, lambda: command(*ours), lambda: command(*theirs)
        )
    peer = "kubectl get pods -o json"
    yield at_most_times(
        f"describe_experiment, {count} Pods", library_s, kubectl_s, TIMES, peer_name=peer
    )
    if not options.quick:  # Starting Python takes longer than handling a hundred Pods.
        yield at_most_times(
            f"symphony ps --json, {count} Pods", command_s, kubectl_s, TIMES, peer_name=peer
        )


if __name__ == "__main__":
    main(__doc__, measure)
