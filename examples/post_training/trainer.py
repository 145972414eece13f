"""One rank of the trainer. Rank 0 gives each rank a share of the samples, and averages the
gradients.

With torch.distributed, this is `scatter` and `all_reduce`, and `init_process_group` reads the
variables that `connect` reads here. When the unit of ranks restarts, rank 0 continues with the
latest weight of the inference servers. A real trainer reads a checkpoint.
"""

import json
import os
import socket
import threading
import time
from typing import Any, TextIO

from web import addresses, post, serve

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RATE = 0.1


def connect() -> list[TextIO]:
    """Return the connections to the other ranks in rank 0, and the one to rank 0 in the others."""
    master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(("", master[1])) as server:
            accepted = [server.accept()[0] for _ in range(SIZE - 1)]
        return [connection.makefile("rw") for connection in accepted]
    while True:
        try:
            return [socket.create_connection(master).makefile("rw")]
        except OSError:
            time.sleep(0.05)


def send(peer: TextIO, message: Any) -> None:
    peer.write(json.dumps(message) + "\n")
    peer.flush()


def receive(peer: TextIO) -> Any:
    # If the other rank has exited, the line is empty, which is no JSON. This rank then fails, too.
    return json.loads(peer.readline())


def gradient(weight: float, samples: list[Any]) -> float:
    """Return the average gradient of some samples."""
    gradients = [2 * (weight * question - correct) * question for question, correct in samples]
    return sum(gradients) / len(gradients)


def lead(ranks: list[TextIO]) -> None:
    """Train with all ranks when the orchestrator requests it."""
    weight = post(addresses("inference")[0], "/latest", None)
    print(f"continues with the weight {weight:.4f}", flush=True)

    def step(samples: list[Any]) -> float:
        nonlocal weight
        for rank, peer in enumerate(ranks, start=1):
            send(peer, [weight, samples[rank::SIZE]])
        gradients = [gradient(weight, samples[::SIZE]), *map(receive, ranks)]
        weight -= RATE * sum(gradients) / SIZE
        return weight

    serve("trainer", {"/step": step})


def follow(leader: TextIO) -> None:
    """Answer rank 0 with the gradient of each share that it sends."""
    threading.Thread(target=serve, args=("trainer", {}), daemon=True).start()
    while True:
        weight, share = receive(leader)
        send(leader, gradient(weight, share))


connections = connect()
if RANK == 0:
    lead(connections)
else:
    follow(connections[0])
