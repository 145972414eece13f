"""Trials in which an experiment is changed while it is running."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil

from symphony import Experiment
from symphony.status import State
from symphony.supervised.processes.environment import read_environment
from torture.children import Child
from torture.trial import trial
from torture.trials.killing import send
from torture.workspace import NAME, Violation, Workspace, is_any_code, is_success

_VERSION = "TRIAL_VERSION"
# The longest delay after the preparation of a change.
_DELAY_SECONDS, _POLL_SECONDS = 0.1, 0.0005
# The grace period of processes that can ignore SIGTERM.
_GRACE_SECONDS = 1

# Maps the names of processes to texts, each of which stands for a description of the process.
_Texts = dict[str, str]


@trial("up")
def change_experiment(workspace: Workspace) -> None:
    """Random changes compete, and their clients or the supervisor are killed at random moments.

    Afterwards, the next change must be complete, and an unchanged process must not be restarted.
    """
    workspace.launch(_random_experiment(workspace))
    kept = _pid_of_kept(workspace)
    for _ in range(workspace.count(2, 6)):
        clients = [
            _start_up(workspace, _random_experiment(workspace))
            for _ in range(workspace.count(2, 4))
        ]
        workspace.sleep()
        attack = workspace.random.random()
        if attack < 0.5:
            clients[0][0].kill()
        elif attack < 0.7:
            for supervisor in workspace.supervisors():
                send(supervisor, signal.SIGKILL)
        for child, words in clients:
            is_killed = attack < 0.5 and child is clients[0][0]
            if is_killed:
                workspace.expect(child, *words, is_permitted=lambda _: True)
            else:
                workspace.expect(child, *words)
        _check_next_change(workspace, kept)


def _random_experiment(workspace: Workspace) -> Experiment:
    """Return an experiment in which only the first process is always the same."""
    experiment = workspace.experiment(processes=workspace.random.randint(1, 8))
    for process in experiment.list_all_processes()[1:]:
        process.set_env(_VERSION, str(workspace.random.randint(0, 2)))
    return experiment


def _start_up(workspace: Workspace, experiment: Experiment) -> tuple[Child, tuple[str, ...]]:
    # Processes run in the directory of their file, so all files are in that of the launch.
    directory = workspace.directory / "commands"
    path = directory / f"up-{len(list(directory.glob('up-*.json')))}.json"
    experiment.dump_file(path)
    words = ("up", str(path))
    return workspace.start_command(*words), words


def _check_next_change(workspace: Workspace, kept: int | None) -> None:
    """Change the experiment once more, and check what is running then."""
    experiment = _random_experiment(workspace)
    child, words = _start_up(workspace, experiment)
    workspace.expect(child, *words, is_permitted=is_success)
    workspace.run("diff", words[1], is_permitted=is_success)
    wanted = {
        process.name: process.settings.env.get(_VERSION)
        for process in experiment.list_all_processes()
    }
    workspace.wait_for(
        lambda: _running_versions(workspace) == wanted,
        lambda: [f"{wanted} should run, but {_running_versions(workspace)} runs"],
    )
    workspace.check_status()
    if _pid_of_kept(workspace) != kept:
        raise Violation("a process that had not changed was restarted")


def _running_versions(workspace: Workspace) -> dict[str, str | None]:
    """Return the version of each process that is running."""
    found: dict[str, str | None] = {}
    for sleeper in workspace.sleepers():
        try:
            environment = psutil.Process(sleeper.pid).environ()
        except psutil.Error:
            continue
        found[environment["SYMPHONY_ROLE"]] = environment.get(_VERSION)
    return found


def _pid_of_kept(workspace: Workspace) -> int | None:
    status = workspace.status()
    return None if status is None else status.processes[0].pid


@trial("kill-up")
def kill_up(workspace: Workspace) -> None:
    """The supervisor or the command is killed at random moments of `up`.

    The next command completes the change, or nothing of it has been done. The next `up` does it.
    """
    count = workspace.count(3, 10)
    old = _random_texts(workspace, count)
    workspace.run("up", str(_write(workspace, old)), is_permitted=is_success)
    workspace.note_runs()
    for _ in range(workspace.count(2, 6)):
        workspace.wait_for(
            lambda: _running(workspace).keys() == set(old.values()),  # noqa: B023
            lambda: [f"{old} should run, not {_running(workspace)}"],  # noqa: B023
        )
        new = _random_texts(workspace, count)
        _change(workspace, old, new)
        old = new


def _change(workspace: Workspace, old: _Texts, new: _Texts) -> None:
    before = _running(workspace)
    path = str(_write(workspace, new))
    command = workspace.start_command("up", path)
    _wait_for_attack(workspace, command)
    attack = workspace.random.choice(("supervisor", "supervisor", "command", "both"))
    if attack != "supervisor":
        command.kill()
    if attack != "command":
        for supervisor in workspace.supervisors():
            send(supervisor, signal.SIGKILL)
    workspace.expect(command, "up", is_permitted=is_any_code if attack == "supervisor" else _any)
    workspace.run("ps", NAME, is_permitted=is_success)
    if workspace.random.random() < 0.7:
        workspace.wait_for(
            lambda: _is_complete(workspace, old) or _is_complete(workspace, new),
            lambda: [f"{old} became a part of {new}: {_running(workspace)}"],
        )
    workspace.run("up", path, is_permitted=is_success)
    workspace.wait_for(
        lambda: _is_complete(workspace, new),
        lambda: [f"{old} did not become {new}: {_running(workspace)}"],
    )
    after = _running(workspace)
    kept = before.keys() & after.keys()
    workspace.refuse([f"{text} was restarted" for text in kept if before[text] != after[text]])
    workspace.check_status()


def _wait_for_attack(workspace: Workspace, command: Child) -> None:
    """Wait for a random time, usually after the command has begun the change."""
    if workspace.random.random() < 0.2:
        workspace.sleep()
        return
    directory = workspace.root / NAME
    while command.poll() is None and not any(directory.glob("change-*")):
        time.sleep(_POLL_SECONDS)
    # The delays are distributed as in `Workspace.sleep`.
    time.sleep(_DELAY_SECONDS * 0.001 ** workspace.random.random())


def _random_texts(workspace: Workspace, count: int) -> _Texts:
    """Return random processes. A text contains the name of a process, a setting and a port."""
    choice = workspace.random.choice
    numbers = [number for number in range(count) if workspace.random.random() < 0.8] or [0]
    return {
        f"p-{number}": f"p-{number} {choice('ab')} {choice((0, 0, 0, 50)) + number}"
        for number in numbers
    }


def _write(workspace: Workspace, texts: _Texts) -> Path:
    """Write the file of an experiment, and return its path."""
    path = workspace.directory / "experiment.json"
    experiment = workspace.cluster().new_experiment(NAME)
    for name, text in texts.items():
        _, setting, port = text.split()
        ignored = "trap '' TERM; " if setting == "b" else ""
        process = experiment.new_process(name, cmd=f"{ignored}exec sleep 100000")
        process.set_env("TEXT", text).termination_grace_period(_GRACE_SECONDS)
        # A process without connections does not depend on the ports of the others.
        process.binds({f"service-{name}": workspace.ports[int(port)]})
        process.connects(f"service-{name}")
    experiment.dump_file(path)
    return path


def _running(workspace: Workspace) -> dict[str, int]:
    """Return the texts and the pids of the running processes."""
    found = {}
    for sleeper in workspace.sleepers():
        environment = read_environment(sleeper.pid)
        if environment is not None:
            found[environment.variables["TEXT"]] = sleeper.pid
    return found


def _is_complete(workspace: Workspace, texts: _Texts) -> bool:
    """Return whether exactly the processes of a description are running, and none is changing."""
    status = workspace.status()
    return (
        _running(workspace).keys() == set(texts.values())
        and status is not None
        and {process.name for process in status} == texts.keys()
        and all(process.state is State.RUNNING and process.kill_at is None for process in status)
    )


def _any(_: int) -> bool:
    return True
