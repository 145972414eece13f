"""Integrate x^2 over 0..10 with a tree of nine processes. Tasks are broadcast down the tree, and
sums are reduced on the way up.

    symphony launch examples/integration/experiment.py --follow
    symphony launch examples/integration/experiment.py --follow -b kube --image integration:1

A master runs outside the two groups, each of which contains a master and its workers. On
Kubernetes, every group is a Pod. The master prints 333.33.
"""

from symphony import Experiment

NAME = "integration"
WORKERS = {"small": 2, "large": 4}


def build(exp: Experiment) -> None:
    master = exp.new_process("master", command="python3", args=["master.py", *_shares()])
    master.binds(["tasks", "sums"])
    for name, workers in WORKERS.items():
        group = exp.new_process_group(name)
        group.new_process(
            f"{name}-master", command="python3", args=["group_master.py", name, str(workers)]
        ).binds([f"{name}-tasks", f"{name}-sums"]).connects(["tasks", "sums"])
        for number in range(workers):
            worker = group.new_process(
                f"{name}-{number}", command="python3", args=["worker.py", name]
            )
            worker.connects([f"{name}-tasks", f"{name}-sums"])


def _shares() -> list[str]:
    return [f"{name}={workers}" for name, workers in WORKERS.items()]
