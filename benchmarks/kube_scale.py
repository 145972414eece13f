"""Measure 1,000 processes beside kubectl, and 10,000 processes alone.

    python benchmarks/kube_scale.py [--quick] [--json]

1,000 processes are launched, listed and deleted. The peers are kubectl create, get and delete with
the same objects, measured in turns. 10,000 processes are launched, awaited, listed and deleted, for
which each command has a limit of memory. ``--quick`` omits these.

The Pods run on simulated nodes of kwok: a real API server, scheduler and controllers handle them,
but no container runs, and there are no logs. The benchmark needs the devcluster, or kwok of the
devcluster and a cluster of KUBECONFIG that exists only for tests, because it adds nodes.

On the devcluster, the programs of Kubernetes and kwok take 13 to 18 ms of processor time to create
a Pod and 7 to 11 ms to delete it, with 10,000 as with 1,000; the launch itself takes 1.3 ms. With
two cores, 1,000 Pods take 8.3 s, and kubectl create 12.3 s: the programs of Kubernetes, such as the
webhooks of Kueue, then use both cores. Beside other programs, the launch of 10,000 took 213 s, ps
2.2 s and the deletion 75 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from _kube import hollow, hollow_nodes, kubeconfig, kubectl, new_namespace
from _pairs import Figure, Options, at_most, at_most_times, in_turns, main

from kubetest.rawapi import RawApi, access
from symphony import Cluster

MANY, VERY_MANY = 1000, 10_000
PODS_PER_NODE = 600
CREATE_TIMES, LIST_TIMES = 0.6, 1.0
DELETE_SECONDS = 15.0
LARGEST_MEGABYTES = 400.0
NAME = "many"
# A program that runs a command, and prints its seconds, its processor time and its kilobytes. The
# system counts the memory of a program from which a command was started as that of the command.
MEASURE_PROGRAM = """
import os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
seconds = time.perf_counter() - begin
print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status) and 1)
"""
# The command line waits until processes have exited.
WAIT_PROGRAM = """
import sys
from symphony import Cluster
cluster = Cluster.new("kube", kubeconfig=sys.argv[2], namespace=sys.argv[1])
cluster.wait("many", until="started", timeout=1800)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a command has cost: seconds of real time and of the processor, and megabytes of memory
    at most.
    """

    seconds: float
    cpu: float
    megabytes: float


def cost(words: Sequence[str]) -> Cost:
    """Run a command, and return what it has cost. Raises CalledProcessError if it fails."""
    measured = [sys.executable, "-S", "-c", MEASURE_PROGRAM, *words]
    done = subprocess.run(measured, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, list(words))
    seconds, cpu, kilobytes = map(float, done.stdout.split())
    return Cost(seconds=seconds, cpu=cpu, megabytes=kilobytes / 1024)


class Side:
    """The commands of one program. It keeps what each command has cost, by its first word."""

    def __init__(self, *program: str) -> None:
        self._program = program
        self.costs: dict[str, list[Cost]] = {}

    def run(self, *words: str) -> float:
        """Run a command, and return its duration in seconds."""
        return self.note(words[0], [*self._program[:-1], *words, self._program[-1]])

    def note(self, name: str, words: Sequence[str]) -> float:
        """Run a program, note its cost with a name, and return its duration in seconds."""
        found = cost(words)
        self.costs.setdefault(name, []).append(found)
        return found.seconds

    def cpu(self, word: str) -> float:
        """Return the median of the processor time of a command."""
        found = sorted(each.cpu for each in self.costs[word])
        return found[len(found) // 2]

    def megabytes(self, word: str) -> float:
        """Return the most memory that a command has taken."""
        return max(each.megabytes for each in self.costs[word])


class Bench:
    """Experiments on hollow nodes, each in a new namespace."""

    def __init__(self, config: Path, scratch: Path) -> None:
        self._config = config
        self._scratch = scratch
        self._raw = RawApi(access(config))
        option = f"--kubeconfig={config}"
        self.symphony = Side(sys.executable, "-m", "symphony", f"--kubeconfig={config}")
        self.kubectl = Side(kubectl(), option)

    def namespace(self) -> AbstractContextManager[str]:
        """Return a context manager that yields a new namespace, which exists until its end."""
        return new_namespace(self._raw)

    def write(self, count: int) -> str:
        """Write the file of an experiment with ``count`` processes, and return its path."""
        file = self._scratch / f"{count}.yml"
        hollow(NAME, count).dump_file(str(file))
        return str(file)

    def write_objects(self, count: int, namespace: str) -> str:
        """Write the objects of the same experiment to a file, and return its path."""
        cluster = Cluster.new("kube", kubeconfig=self._config, namespace=namespace)
        objects = self._scratch / f"{namespace}.yaml"
        objects.write_text(str(cluster.manifest(hollow(NAME, count))))
        return str(objects)

    def wait(self, namespace: str) -> float:
        """Wait until all processes have started, and return the duration in seconds."""
        words = [sys.executable, "-c", WAIT_PROGRAM, namespace, str(self._config)]
        return self.symphony.note("wait", words)

    def wait_for_kubectl(self, namespace: str) -> None:
        """Wait until the Pods that kubectl has created are running."""
        path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase!=Running&limit=1"
        while self._raw.call("GET", path)["items"]:
            time.sleep(0.2)

    def wait_until_gone(self, namespace: str) -> None:
        """Wait until the Pods that kubectl has deleted are gone."""
        while self._raw.call("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")["items"]:
            time.sleep(0.2)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    config = kubeconfig()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SYMPHONY_STATE_DIR"] = scratch
        with hollow_nodes(config, count=4, pods_each=PODS_PER_NODE):
            yield from beside_kubectl(Bench(config, Path(scratch)), options)
        if not options.quick:
            nodes = VERY_MANY // PODS_PER_NODE + 1
            with hollow_nodes(config, count=nodes, pods_each=PODS_PER_NODE):
                yield from very_many(Bench(config, Path(scratch)))


def beside_kubectl(bench: Bench, options: Options) -> Iterator[Figure]:
    """Yield the figures of 1,000 processes beside kubectl."""
    ours, theirs = bench.symphony, bench.kubectl
    deleted: tuple[list[float], list[float]] = ([], [])
    lists: tuple[list[float], list[float]] = ([], [])

    def with_symphony() -> float:
        with bench.namespace() as namespace:
            file = bench.write(MANY)
            on_cluster = ("-b", "kube", f"--namespace={namespace}")
            launched = ours.run("launch", file, *on_cluster)
            bench.wait(namespace)
            listed, peer = in_turns(
                options.pick(9, 5),
                lambda: ours.run("ps", NAME, *on_cluster),
                lambda: theirs.run("get", "pods", f"--namespace={namespace}"),
            )
            lists[0].extend(listed)
            lists[1].extend(peer)
            deleted[0].append(ours.run("delete", "-f", NAME, *on_cluster))
        return launched

    def with_kubectl() -> float:
        with bench.namespace() as namespace:
            objects = bench.write_objects(MANY, namespace)
            created = theirs.run("create", "-f", objects, f"--namespace={namespace}")
            bench.wait_for_kubectl(namespace)
            begin = time.perf_counter()
            # kubectl would ask for each Pod whether it is gone, which takes minutes.
            theirs.run("delete", "pods", "--all", "--wait=false", f"--namespace={namespace}")
            bench.wait_until_gone(namespace)
            deleted[1].append(time.perf_counter() - begin)
        return created

    launched, created = in_turns(options.pick(3, 1), with_symphony, with_kubectl)
    yield at_most_times(
        f"launch, {MANY} Pods",
        launched,
        created,
        CREATE_TIMES,
        peer_name="kubectl create",
        note=_cpu(bench, "launch", "create"),
    )
    yield at_most_times(
        f"ps, {MANY} Pods", *lists, LIST_TIMES, peer_name="get pods", note=_cpu(bench, "ps", "get")
    )
    yield at_most(
        f"delete, {MANY} running Pods",
        "s",
        deleted[0],
        DELETE_SECONDS,
        peer=deleted[1],
        peer_name="delete pods",
        note=_cpu(bench, "delete", "delete"),
    )


def _cpu(bench: Bench, ours: str, theirs: str) -> str:
    """Return the processor time of both programs, which depends less on the machine's load."""
    own, peer = bench.symphony.cpu(ours), bench.kubectl.cpu(theirs)
    return f"processor time of the clients: {own:.2f} s, kubectl {peer:.2f} s"


def very_many(bench: Bench) -> Iterator[Figure]:
    """Yield the figures of 10,000 processes."""
    ours = bench.symphony
    ours.costs.clear()
    with bench.namespace() as namespace:
        file = bench.write(VERY_MANY)
        on_cluster = ("-b", "kube", f"--namespace={namespace}")
        steps: dict[str, Callable[[], float]] = {
            "launch": lambda: ours.run("launch", file, *on_cluster),
            "wait": lambda: bench.wait(namespace),
            "ps": lambda: ours.run("ps", NAME, *on_cluster),
            "delete": lambda: ours.run("delete", "-f", NAME, *on_cluster),
        }
        for name, step in steps.items():
            seconds = step()
            yield at_most(
                f"{name}, {VERY_MANY} Pods, memory",
                "MB",
                [ours.megabytes(name)],
                LARGEST_MEGABYTES,
                note=f"{seconds:.1f} s, processor time of the client {ours.cpu(name):.1f} s",
            )


if __name__ == "__main__":
    main(__doc__, measure)
