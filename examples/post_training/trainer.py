"""One rank of the trainer. The ranks average their gradients through rank 0.

With torch.distributed, `average` is `all_reduce`, and `init_process_group` reads the variables that
`connect` reads here.
"""

import os
import socket
import struct
import time
from typing import Any

from web import serve

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RATE = 0.1
NUMBER = struct.Struct("d")
weight = 0.0


def connect() -> list[socket.socket]:
    """Return the connections to the other ranks in rank 0, and the one to rank 0 in the others."""
    master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(("", master[1])) as server:
            return [server.accept()[0] for _ in range(SIZE - 1)]
    while True:
        try:
            return [socket.create_connection(master)]
        except OSError:
            time.sleep(0.05)


def average(value: float, peers: list[socket.socket]) -> float:
    """Return the average of the values of all ranks."""
    if RANK == 0:
        total = value + sum(receive(peer) for peer in peers)
        for peer in peers:
            peer.sendall(NUMBER.pack(total / SIZE))
        return total / SIZE
    peers[0].sendall(NUMBER.pack(value))
    return receive(peers[0])


def receive(peer: socket.socket) -> float:
    data = peer.recv(NUMBER.size, socket.MSG_WAITALL)
    return float(NUMBER.unpack(data)[0])


connections = connect()


def step(samples: list[Any]) -> float:
    """Change the weight by the average gradient of all ranks, and return it."""
    global weight
    gradients = [2 * (weight * question - correct) * question for question, correct in samples]
    weight -= RATE * average(sum(gradients) / len(gradients), connections)
    return weight


serve("trainer", {"/step": step})
