"""Three processes that form a ring and use plain Python sockets instead of ZeroMQ.

    symphony launch examples/sockets/experiment.py --follow
    symphony launch examples/sockets/experiment.py --follow -b kube --image symphony-sockets:1

One process is not in a group. The other two form a group, which is a single Pod on Kubernetes. The
program is the same on every backend and needs only the standard library.
"""

from symphony import Experiment

NAME = "sockets"
RING = ("first", "second", "third")


def build(exp: Experiment) -> None:
    pair = exp.new_process_group("pair")
    for number, name in enumerate(RING):
        following = RING[(number + 1) % len(RING)]
        owner = exp if number == 0 else pair
        process = owner.new_process(name, command="python3", args=["node.py", name, following])
        process.binds(name).connects(following)
