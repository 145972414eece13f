"""Rendering for Kubernetes: 10,000 processes to JSON-ready objects and to YAML, beside json.dumps and PyYAML.

Each process has 30 variables of its own and the addresses of 11 services. No cluster is needed. What is measured is
the time of the processor, since nothing here waits: others on the machine then count for little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from _pairs import Figure, Options, at_most, at_most_times, in_turns, main, median

from symphony import Experiment
from symphony.plan.resolve import Plan
from symphony_kube.cluster import KubeCluster
from symphony_kube.render.experiment import render
from symphony_kube.render.manifest import KubeManifest

VARIABLES, SERVICES = 30, 11
CLUSTER = KubeCluster(image="rl:1")


def measure(options: Options) -> Iterator[Figure]:
    """The figures of this benchmark."""
    many = options.pick(10_000, 1_000)
    few = many // 10
    runs = options.pick(7, 3)
    limit = (
        None if options.quick else 11.0
    )  # what a few processes take is too little to be measured well
    yield growth("resolving", resolved, experiments(few), experiment("many", many), runs, limit)
    # Ten small ones rather than one ten times: then neither side finds its plan in the processor's cache.
    small, plan = (
        [CLUSTER.plan(exp) for exp in experiments(few)],
        CLUSTER.plan(experiment("many", many)),
    )
    yield growth("rendering", rendered, small, plan, runs, limit)
    yield to_objects(plan, runs)
    yield to_yaml(plan, options.pick(3, 3))


def to_objects(plan: Plan, runs: int) -> Figure:
    """Rendering, beside the bare json.dumps of what was rendered."""
    objects = list(rendered(plan))
    ours, peer = in_turns(
        runs, lambda: worked(lambda: rendered(plan)), lambda: worked(lambda: json.dumps(objects))
    )
    what = f"{len(plan.processes):,} processes to objects"
    return at_most_times(what, ours, peer, 3.0, peer_name="json.dumps")


def to_yaml(plan: Plan, runs: int) -> Figure:
    """The text of a manifest, beside libyaml's of the same objects."""
    manifest = rendered(plan)
    objects = json.loads(
        json.dumps(list(manifest))
    )  # with nothing in common, as another program would have them

    def peer() -> None:
        yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False)

    ours, theirs = in_turns(runs, lambda: worked(lambda: str(manifest)), lambda: worked(peer))
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
    """How much longer ten times as many processes take."""

    def one_of_small() -> float:
        return sum(worked(lambda item=item: work(item)) for item in small) / len(small)

    ours, peer = in_turns(runs, lambda: worked(lambda: work(large)), one_of_small)
    ratio = median(ours) / median(peer)
    return at_most(f"{what}: growth for 10x as many", "times", [ratio], limit)


def worked(function: Callable[[], object]) -> float:
    """How long the processor works on a call, in seconds."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def resolved(exp: Experiment) -> Plan:
    """The plan of an experiment."""
    return CLUSTER.plan(exp)


def rendered(plan: Plan) -> KubeManifest:
    """The objects of a plan."""
    return render(plan, CLUSTER.scope(plan.experiment), CLUSTER.options, {})


def experiments(size: int) -> list[Experiment]:
    """Ten experiments."""
    return [experiment(f"few-{number}", size) for number in range(10)]


def experiment(name: str, size: int) -> Experiment:
    """An experiment of so many processes, of which the first bind the services."""
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
