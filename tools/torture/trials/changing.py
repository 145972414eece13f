"""A trial in which several programs change an experiment that is running."""

from __future__ import annotations

import signal

import psutil

from symphony import Experiment
from torture.children import Child
from torture.trial import trial
from torture.trials.killing import send
from torture.workspace import Violation, Workspace, is_success

_VERSION = "TRIAL_VERSION"


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
