"""Integrate x^2 from 0 to 10 with a tree of nine processes. Each master broadcasts tasks to its
children, and adds up their results.

    symphony launch examples/integration/experiment.py --follow
    symphony launch examples/integration/experiment.py --follow -b kube --image integration:1

The top-level master runs outside the two groups. Each group contains a group master and its
workers. On Kubernetes, each group is a Pod. The top-level master prints 333.33.
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
