"""A trial in which the launch of an experiment on Kubernetes is cut at a random moment."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from torture.trial import trial
from torture.workspace import KUBE, NAME, Workspace, is_any_code, is_success

# A moment can also be shortly after the end of the launch.
_LONGEST_FACTOR = 1.2
# Most of a launch is its preparation, so many launches are killed while they create the objects.
_CREATING_PROBABILITY = 0.7
_CREATION_SECONDS = 0.3
# Experiments with their own namespaces are rarer, because deleting a namespace takes seconds.
_OWN_NAMESPACE_PROBABILITY = 0.3
# The other experiments have Pods that no node accepts, which do not load the machine.
_RUNNING_PROBABILITY = 0.2
_NO_NODE = {"symphony.test/no-such-node": "true"}
_SUCCEEDED = "succeeded"


@trial("cut-launch", backends=[KUBE])
def cut_launch(workspace: Workspace) -> None:
    """A launch is killed at a random moment. Nothing is reported as succeeded afterwards.

    The experiment can be deleted, which leaves nothing, and launched again, also without deleting
    it.
    """
    name = NAME
    if workspace.random.random() < _OWN_NAMESPACE_PROBABILITY:
        name = workspace.use_own_namespaces()
    is_running = workspace.random.random() < _RUNNING_PROBABILITY
    path, processes = _write(workspace, name, is_running=is_running)
    is_cut = _cut(workspace, name, path)
    found = _check_answers(workspace, name, processes)
    if is_cut:
        workspace.note_moment(_verb(name), f"left {found}")
    if workspace.random.random() < 0.5:
        _delete(workspace, name)
        _relaunch(workspace, name, path, processes)
    else:
        _relaunch(workspace, name, path, processes, "--force")
    if is_running:
        workspace.run("wait", name, "--timeout", "0.1", is_permitted=is_any_code)
        workspace.wait_for(
            lambda: workspace.running_texts().keys() >= {("p-0", "")},
            lambda: [f"p-0 is not running after the relaunch: {workspace.status(name)}"],
        )
    _delete(workspace, name)


def _write(workspace: Workspace, name: str, *, is_running: bool) -> tuple[Path, set[str]]:
    """Write the file of a random experiment. Return its path and the names of its processes."""
    chance = workspace.random.random
    processes: dict[str, dict[str, Any]] = {}
    for number in range(workspace.count(2, 6)):
        process: dict[str, Any] = {
            "command": ["sleep", "100000"],
            "termination_grace_period": 0,
            "binds": [f"service-{number}"],
        }
        if not is_running:
            process["node_selector"] = _NO_NODE
        if number and chance() < 0.3:
            process["starts_after"] = ["p-0"]
        elif chance() < 0.3:
            process["job"] = {"backoff_limit": 1}
        processes[f"p-{number}"] = process
    experiment: dict[str, Any] = {"name": name, "processes": processes}
    if chance() < 0.5:
        (workspace.directory / "token").write_text("swordfish")
        experiment["secrets"] = {"token": str(workspace.directory / "token")}
    path = workspace.directory / "cut.json"
    path.write_text(json.dumps(experiment))
    return path, set(processes)


def _verb(name: str) -> str:
    return "launch" if name == NAME else "launch in a new namespace"


def _cut(workspace: Workspace, name: str, path: Path) -> bool:
    """Kill a launch, and return True. If its duration is unknown, measure it instead."""
    words = ("launch", str(path))
    verb = _verb(name)
    duration = workspace.duration(verb)
    if duration is None:
        began = time.monotonic()
        workspace.run(*words, is_permitted=is_success)
        workspace.note_duration(verb, time.monotonic() - began)
        return False
    command = workspace.start_command(*words)
    if workspace.random.random() < _CREATING_PROBABILITY:
        while command.poll() is None and not workspace.has_objects():
            continue
        time.sleep(workspace.random.uniform(0.0, _CREATION_SECONDS))
    else:
        time.sleep(workspace.random.uniform(0.0, _LONGEST_FACTOR * duration))
    command.kill()
    return True


def _check_answers(workspace: Workspace, name: str, processes: set[str]) -> str:
    """Check that no command reports a success, and that the processes are known or none is.

    Return the state of the experiment, or ``nothing``.
    """
    state = "nothing"
    for status in json.loads(workspace.run("ls", "--json")):
        if status["name"] == name and status["state"] == _SUCCEEDED:
            workspace.refuse([f"ls shows the cut launch as {_SUCCEEDED}: {status}"])
    output = workspace.run("ps", name, "--json")
    if output:
        status = json.loads(output)
        found = {process["name"] for process in status["processes"]}
        state = status["state"] if found else "no processes"
        # The processes that have not been created and wait for none have no reason.
        if any((item["state"], item["reason"]) == ("pending", "") for item in status["processes"]):
            state = "a part"
        if status["state"] == _SUCCEEDED or (found and found != processes):
            workspace.refuse([f"ps shows a wrong status of the cut launch: {status}"])
    command = workspace.start_command("wait", name, "--timeout", "0.5")
    if workspace.expect(command, "wait", name, is_permitted=is_any_code) == 0:
        workspace.refuse(["wait returned 0 after the cut launch"])
    return state


def _relaunch(
    workspace: Workspace, name: str, path: Path, processes: set[str], *options: str
) -> None:
    workspace.run("launch", str(path), *options, is_permitted=is_success)
    _check_answers(workspace, name, processes)
    status = workspace.status(name)
    if status is None or {process.name for process in status} != processes:
        workspace.refuse([f"the relaunched experiment is not complete: {status}"])


def _delete(workspace: Workspace, name: str) -> None:
    workspace.run("delete", "--force", name, is_permitted=is_success)
    workspace.refuse([f"{found} is left" for found in workspace.left_objects(name)])
