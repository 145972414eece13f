"""The trial in which ranks of a distributed training are killed."""

from __future__ import annotations

import signal

from symphony import Experiment
from symphony.errors import SymphonyError
from symphony.status import State
from torture.trial import trial
from torture.workspace import KUBE, LOCAL, NAME, TMUX, Violation, Workspace

RANKS, STEPS, PAUSE_SECONDS = 3, 40, 0.05
MAX_ATTEMPTS_TO_KILL = 100

# The ranks average a number in each step. Rank 0 writes a checkpoint after each step, if the file
# is on a volume that the next execution of the rank can read. A rank fails without a traceback if
# another rank has been killed, because the checks regard a traceback in the output of
# `symphony logs` as an error of symphony.
TRAINING = """
import os, socket, struct, sys, time
sys.excepthook = lambda _kind, error, _traceback: print("failed:", error, flush=True)
steps, pause, checkpoint = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
number = struct.Struct("dd")
def receive(peer):
    return number.unpack(peer.recv(number.size, socket.MSG_WAITALL))
first, total = 0.0, 0.0
if rank == 0:
    if os.path.exists(checkpoint):
        first, total = map(float, open(checkpoint).read().split())
        print("resumes at", int(first), flush=True)
    server = socket.create_server(("", port))
    peers = [server.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        peer.sendall(number.pack(first, total))
else:
    while True:
        try:
            peers = [socket.create_connection((master, port), timeout=5)]
            break
        except OSError:
            time.sleep(0.02)
    peers[0].settimeout(None)
    first, total = receive(peers[0])
for step in range(int(first), steps):
    own = float((rank + 1) * (step + 1))
    if rank == 0:
        own += sum(receive(peer)[0] for peer in peers)
        average = own / size
        for peer in peers:
            peer.sendall(number.pack(average, 0))
    else:
        peers[0].sendall(number.pack(own, 0))
        average = receive(peers[0])[0]
    total += average
    if rank == 0:
        with open(checkpoint + ".new", "w") as file:
            file.write(f"{step + 1} {total}")
        os.replace(checkpoint + ".new", checkpoint)
    time.sleep(pause)
print("result", total, flush=True)
"""
_STEPS = range(1, STEPS + 1)
RESULT = f"result {sum(_STEPS) * (RANKS + 1) / 2}"


@trial("kill-rank", backends=(LOCAL, TMUX, KUBE))
def kill_rank(workspace: Workspace) -> None:
    """Random ranks of a training are killed. The training restarts, and its result is right."""
    workspace.launch(_training(workspace))
    kills = workspace.count(1, 4)
    for _ in range(kills):
        _kill_one(workspace)
    workspace.wait_for(lambda: _has_finished(workspace), lambda: _unfinished(workspace))
    status = workspace.status()
    processes = () if status is None else status.processes
    restarts = {process.restarts for process in processes}
    if len(restarts) != 1 or not 1 <= min(restarts) <= kills:
        raise Violation(f"{kills} ranks were killed, and the ranks restarted {restarts} times")
    for process in processes:
        log = workspace.cluster().get_log(NAME, process.name)
        if log.splitlines()[-1:] != [RESULT]:
            raise Violation(f"{process.name} printed {log!r}, but the result is {RESULT!r}")


def _training(workspace: Workspace) -> Experiment:
    ports = (workspace.ports[0], workspace.ports[-1])
    experiment = workspace.cluster().new_experiment(NAME, port_range=ports)
    checkpoint = "/tmp/checkpoint"
    if workspace.backend != KUBE:
        checkpoint = str(workspace.directory / "checkpoint")
    arguments = [str(STEPS), str(PAUSE_SECONDS), checkpoint]
    command = ["python3", "-c", TRAINING, *arguments]
    for rank in experiment.new_ranks("train", RANKS, command=command):
        rank.restart_policy("OnFailure", backoff=0.1)
        rank.termination_grace_period(1)
    return experiment


def _kill_one(workspace: Workspace) -> None:
    """Kill a random rank at a random moment at which it is running."""
    for _ in range(MAX_ATTEMPTS_TO_KILL):
        workspace.sleep()
        name = f"train-{workspace.random.randrange(RANKS)}"
        try:
            workspace.cluster().signal_processes(NAME, [name], signal.SIGKILL)
            return
        except SymphonyError:
            # The rank is not running now, because the unit restarts.
            continue
    raise Violation(f"no rank was running in {MAX_ATTEMPTS_TO_KILL} attempts to kill one")


def _has_finished(workspace: Workspace) -> bool:
    status = workspace.status()
    return status is not None and all(item.state is State.SUCCEEDED for item in status)


def _unfinished(workspace: Workspace) -> list[str]:
    status = workspace.status()
    return [f"the training has not succeeded: {status and status.to_dict()}"]
