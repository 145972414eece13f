"""Measure how long the commands take that work on Kubernetes.

The commands create, list, show and delete experiments, show 1,000 processes, read a log, and copy a
file in both directions. The peers are kubectl create, get, delete, logs and cp.

    python benchmarks/kube_use.py [--quick] [--json]

Each experiment has a namespace of its own. The processes of the largest experiment run on hollow
nodes: a real API server, scheduler and controllers handle them, but no container runs. The
benchmark needs kubectl, and a Kubernetes cluster that exists only for tests and can pull the image
in SYMPHONY_TEST_IMAGE, because the benchmark adds nodes to the cluster. It uses the cluster in
KUBECONFIG, or else the devcluster with its image.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _kube import STARTED, hollow, hollow_nodes, kubeconfig, kubectl
from _pairs import Figure, Options, at_most_times, in_turns, main, timed

from symphony import Cluster, Experiment

IMAGE = os.environ.get("SYMPHONY_TEST_IMAGE", "docker.io/library/symphony-test:devcluster")


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    config, runs = kubeconfig(), options.pick(5, 1)
    cluster = Cluster.new("kube", kubeconfig=config, image=IMAGE)
    prefix = f"symphony-bench-{secrets.token_hex(3)}"
    symphony = [sys.executable, "-m", "symphony"]
    ours = ["-b", "kube", f"--kubeconfig={config}"]
    theirs = [kubectl(), f"--kubeconfig={config}"]
    names = [f"{prefix}-{number}" for number in range(20)]
    created = [f"{prefix}-created-{number}" for number in range(2 * runs)]
    many = f"{prefix}-many"
    try:
        yield create(cluster, created, runs, (symphony, ours, theirs))
        launch(cluster, names)
        listed, peer = in_turns(
            runs,
            lambda: run(*symphony, "ls", *ours),
            lambda: run(*theirs, "get", "pods", "--all-namespaces"),
        )
        yield at_most_times("ls, 20 experiments", listed, peer, 1.2, plus=1.0, peer_name="get pods")
        shown, peer = in_turns(
            runs,
            lambda: run(*symphony, "ps", names[0], *ours),
            lambda: run(*theirs, "get", "pods", f"--namespace={names[0]}"),
        )
        yield at_most_times("status, 1 process", shown, peer, 1.2, plus=1.0, peer_name="get pods")
        deleted = run(*symphony, "delete", "-f", f"{prefix}-*", *ours)
        launch(cluster, names)
        peer_deleted = run(*theirs, "delete", "namespace", *names)
        yield at_most_times(
            "delete, 20 experiments", [deleted], [peer_deleted], 1.5, peer_name="delete namespace"
        )
        yield from show_processes(cluster, many, options, (symphony, ours, theirs))
        yield from use(cluster, prefix, options, (symphony, ours, theirs))
    finally:
        for name in [*names, *created, many, prefix]:
            cluster.delete(name)


def create(
    cluster: Cluster, names: list[str], runs: int, words: tuple[list[str], list[str], list[str]]
) -> Figure:
    """Return the figure for the creation of an experiment with 20 processes.

    kubectl creates the same objects. The experiments are those in ``names``, one for each run of
    each program.
    """
    symphony, ours, theirs = words
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            experiment = without_nodes(name, 20)
            experiment.dump_file(f"{directory}/{name}.yml")
            Path(directory, f"{name}-objects.yml").write_text(str(cluster.manifest(experiment)))
        remaining = iter(names)

        def launch_experiment() -> float:
            file = f"{directory}/{next(remaining)}.yml"
            return run(*symphony, "launch", file, *ours)

        def create_objects() -> float:
            return run(*theirs, "create", "-f", f"{directory}/{next(remaining)}-objects.yml")

        launched, peer = in_turns(runs, launch_experiment, create_objects)
    return at_most_times(
        "create, 20 processes", launched, peer, 1.2, plus=1.0, peer_name="create -f"
    )


def show_processes(
    cluster: Cluster, name: str, options: Options, words: tuple[list[str], list[str], list[str]]
) -> Iterator[Figure]:
    """Yield the figure for the running processes of one large experiment."""
    symphony, ours, theirs = words
    processes, runs = options.pick(1000, 50), options.pick(11, 1)
    with hollow_nodes(kubeconfig(), count=options.pick(3, 1)):
        cluster.launch(hollow(name, processes))
        cluster.wait(name, until=STARTED, timeout=600)
        shown, peer = in_turns(
            runs,
            lambda: run(*symphony, "ps", name, *ours),
            lambda: run(*theirs, "get", "pods", f"--namespace={name}"),
        )
        cluster.delete(name)
    yield at_most_times(
        f"ps, {processes} processes", shown, peer, 1.2, plus=1.0, peer_name="get pods"
    )


def use(
    cluster: Cluster, name: str, options: Options, words: tuple[list[str], list[str], list[str]]
) -> Iterator[Figure]:
    """Yield the figures for a log of one process, and for a file that is copied from and to it."""
    symphony, ours, theirs = words
    lines, size, runs = options.pick(100_000, 10_000), options.pick(300, 20), options.pick(5, 1)
    experiment = Experiment(name)
    process = experiment.new_process(
        "p", cmds=[f"head -c {size}000000 /dev/urandom >/tmp/f", f"seq {lines}", "sleep 10000"]
    )
    process.termination_grace_period(1).ready(log=f"^{lines}$")
    cluster.launch(experiment)
    cluster.wait(name, until=STARTED, timeout=60)
    while f"\n{lines}\n" not in cluster.get_log(name, "p", tail=2):
        continue
    log, peer_log = in_turns(
        runs,
        lambda: run(*symphony, "logs", name, "p", *ours),
        lambda: run(*theirs, "logs", f"--namespace={name}", "p"),
    )
    yield at_most_times(f"logs, {lines} lines", log, peer_log, 1.2, plus=1.0, peer_name="logs")
    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/f"
        copied, peer_copied = in_turns(
            runs,
            lambda: run(*symphony, "cp", name, "p:/tmp/f", file, *ours),
            lambda: run(*theirs, "cp", f"--namespace={name}", "p:/tmp/f", file),
        )
        yield at_most_times(
            f"cp from a process, {size} MB", copied, peer_copied, 1.3, plus=1.0, peer_name="cp"
        )
        copied, peer_copied = in_turns(
            runs,
            lambda: run(*symphony, "cp", name, file, "p:/tmp/g", *ours),
            lambda: run(*theirs, "cp", f"--namespace={name}", file, "p:/tmp/g"),
        )
        yield at_most_times(
            f"cp to a process, {size} MB", copied, peer_copied, 1.3, plus=1.0, peer_name="cp"
        )


def launch(cluster: Cluster, names: list[str], processes: int = 1) -> None:
    """Launch experiments whose processes do not matter."""
    for name in names:
        cluster.launch(without_nodes(name, processes))


def without_nodes(name: str, processes: int) -> Experiment:
    """Return an experiment whose Pods fit on no node."""
    experiment = Experiment(name)
    for number in range(processes):
        process = experiment.new_process(f"p-{number}", command=["sleep", "10000"])
        process.container_image = IMAGE
        process.node_selector("symphony.test/no-such-node", "true")
    return experiment


def run(*words: str) -> float:
    """Return how long a command takes."""
    return timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))


if __name__ == "__main__":
    main(__doc__, measure)
