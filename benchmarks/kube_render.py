"""Measure how long it takes to render 10,000 processes as Kubernetes objects and as YAML.

The peers are json.dumps and PyYAML.

Each process has 30 variables of its own and the addresses of 11 services. No cluster is needed. CPU
time is measured because rendering never waits, and because other programs on the machine affect CPU
time less than elapsed time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from _pairs import Figure, Options, at_most, at_most_times, in_turns, main, median

from symphony import Experiment
from symphony.plan.plan import Plan
from symphony_kube.cluster import KubeCluster
from symphony_kube.render.experiment import render
from symphony_kube.render.manifest import KubeManifest

VARIABLES, SERVICES = 30, 11
CLUSTER = KubeCluster(image="rl:1")


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    many = options.pick(10_000, 1_000)
    few = many // 10
    runs = options.pick(7, 3)
    limit = (
        None if options.quick else 11.0
    )  # Rendering a few processes takes too little time to be measured precisely.
    yield growth("resolving", resolved, experiments(few), experiment("many", many), runs, limit)
    # Ten small experiments are used instead of one experiment ten times, so that neither side finds
    # its plan in the processor cache.
    small, plan = (
        [CLUSTER.plan(exp) for exp in experiments(few)],
        CLUSTER.plan(experiment("many", many)),
    )
    yield growth("rendering", rendered, small, plan, runs, limit)
    yield to_objects(plan, runs)
    yield to_yaml(plan, options.pick(3, 3))


def to_objects(plan: Plan, runs: int) -> Figure:
    """Return the figure for rendering.

    The peer is json.dumps, which converts the rendered objects to JSON.
    """
    objects = list(rendered(plan))
    ours, peer = in_turns(
        runs,
        lambda: cpu_seconds(lambda: rendered(plan)),
        lambda: cpu_seconds(lambda: json.dumps(objects)),
    )
    what = f"{len(plan.processes):,} processes to objects"
    return at_most_times(what, ours, peer, 3.0, peer_name="json.dumps")


def to_yaml(plan: Plan, runs: int) -> Figure:
    """Return the figure for writing a manifest as YAML.

    The peer is PyYAML, which writes the same objects with libyaml.
    """
    manifest = rendered(plan)
    objects = json.loads(
        json.dumps(list(manifest))
    )  # Like objects from another program, these objects share no parts.

    def peer() -> None:
        yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False)

    ours, theirs = in_turns(
        runs, lambda: cpu_seconds(lambda: str(manifest)), lambda: cpu_seconds(peer)
    )
    what = f"{len(plan.processes):,} processes to YAML"
    return at_most_times(what, ours, theirs, 1.2, peer_name="yaml.dump_all")


def growth(
    what: str,
    work: Callable[[Any], object],
    small: list[Any],
    large: Any,
    runs: int,
    limit: float | None,
) -> Figure:
    """Return the figure for how much longer ``work`` takes for ten times as many processes."""

    def average_of_small() -> float:
        return sum(cpu_seconds(lambda item=item: work(item)) for item in small) / len(small)

    ours, peer = in_turns(runs, lambda: cpu_seconds(lambda: work(large)), average_of_small)
    ratio = median(ours) / median(peer)
    return at_most(f"{what}: growth for 10x as many", "times", [ratio], limit)


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of a call in seconds."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def resolved(exp: Experiment) -> Plan:
    """Return an experiment's plan."""
    return CLUSTER.plan(exp)


def rendered(plan: Plan) -> KubeManifest:
    """Return a plan's manifest."""
    return render(plan, CLUSTER.scope(plan.experiment), CLUSTER.options, {})


def experiments(size: int) -> list[Experiment]:
    """Return ten experiments of ``size`` processes each."""
    return [experiment(f"few-{number}", size) for number in range(10)]


def experiment(name: str, size: int) -> Experiment:
    """Return an experiment in which ``size`` processes bind or connect to services."""
    result = Experiment(name)
    for number in range(size):
        env = {f"VARIABLE_{index}": f"value {index} of {number}" for index in range(VARIABLES)}
        args = ["agent.py", "--index", number]
        process = result.new_process(f"agent-{number}", command="python3", args=args, env=env)
        if number < SERVICES:
            process.binds(f"service-{number}")
        else:
            process.connects("service-0")
    return result


if __name__ == "__main__":
    main(__doc__, measure)
