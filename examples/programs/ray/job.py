"""Run tasks on all nodes, and count with an actor."""

import os
import sys
import time

import ray

ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)


@ray.remote(num_cpus=1)
def node_of_task() -> str:
    """Return the identifier of the node that runs the task."""
    time.sleep(0.2)
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=1)
class Counter:
    """An actor that counts."""

    def __init__(self) -> None:
        self.value = 0

    def increment(self) -> int:
        self.value += 1
        return self.value


nodes = set(ray.get([node_of_task.remote() for _ in range(20)]))
counter = Counter.remote()
for _ in range(int(sys.argv[1])):
    count = ray.get(counter.increment.remote())
alive = sum(node["Alive"] for node in ray.nodes())
print("nodes", len(nodes), "alive", alive, "count", count, flush=True)
