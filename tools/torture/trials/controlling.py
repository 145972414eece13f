"""Trials in which several programs stop, start, restart and signal processes."""

from __future__ import annotations

import signal

from torture.children import Child
from torture.trial import trial
from torture.trials.killing import send
from torture.workspace import NAME, Workspace, is_any_code, is_success

_NAMES = ("p-0", "p-1", "p", "p-[12]")


@trial("control")
def control_processes(workspace: Workspace) -> None:
    """Random requests compete, and their clients or the supervisor are killed at random moments."""
    processes = workspace.count(3, 12)
    workspace.launch(workspace.experiment(processes=processes))
    for _ in range(workspace.count(2, 6)):
        clients = [_random_client(workspace) for _ in range(workspace.count(2, 5))]
        workspace.sleep()
        attack = workspace.random.random()
        if attack < 0.4:
            clients[0][0].kill()
        elif attack < 0.5:
            for supervisor in workspace.supervisors():
                send(supervisor, signal.SIGKILL)
        for child, words in clients:
            is_killed = attack < 0.4 and child is clients[0][0]
            if is_killed:
                workspace.expect(child, *words, is_permitted=lambda _: True)
            else:
                workspace.expect(child, *words)
    workspace.check_status()
    # A request whose client was killed can still be in progress.
    workspace.run("stop", NAME, "--now", is_permitted=is_success)
    workspace.run("start", NAME, is_permitted=is_any_code)
    workspace.wait_for(
        lambda: len(workspace.sleepers()) == processes,
        lambda: [f"after 'start', {processes} processes should run"],
    )
    workspace.check_status()


def _random_client(workspace: Workspace) -> tuple[Child, tuple[str, ...]]:
    """Start a command that controls random processes."""
    choice = workspace.random.choice
    verb = choice(("stop", "start", "restart", "restart", "signal"))
    names = [choice(_NAMES)] if workspace.random.random() < 0.8 else []
    options: tuple[str, ...] = ()
    if verb == "signal":
        # If all processes were killed, the experiment would finish.
        names = ["p-1"]
        options = ("--signal", choice(("WINCH", "HUP", "KILL")))
    elif verb != "start":
        options = choice(((), ("--now",), ("--grace", "0.05")))
    words = (verb, NAME, *names, *options)
    return workspace.start_command(*words), words
