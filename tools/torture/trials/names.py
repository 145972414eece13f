"""Trials in which several programs launch and delete experiments at the same time."""

from __future__ import annotations

from symphony.supervised.record import directory
from symphony.supervised.resources.unsupervised import service_ports
from torture import checks
from torture.children import Child
from torture.trial import trial
from torture.workspace import NAME, Workspace, is_success


@trial("many-names")
def launch_many_names(workspace: Workspace) -> None:
    """Many experiments are launched at once: all of them run, and no port is assigned twice."""
    launchers = []
    for number in range(workspace.count(4, 40)):
        experiment = workspace.experiment(f"{NAME}-{number}", 2, has_fixed_ports=False)
        launchers.append(workspace.start_launch(experiment))
    for launcher in launchers:
        workspace.expect(launcher, "launch", is_permitted=is_success)
    runs = directory.find_all(workspace.root)
    ports = {run.name: service_ports(run.load_manifest()) for run in runs}
    if len(ports) != len(launchers):
        workspace.refuse([f"{len(launchers)} launches succeeded, but there are {sorted(ports)}"])
    workspace.refuse(checks.shared_ports(ports))
    workspace.wait_for(
        lambda: len(workspace.sleepers()) == 2 * len(launchers),
        lambda: [f"{2 * len(launchers)} processes should run"],
    )


@trial("one-name-forced")
def launch_one_name_by_force(workspace: Workspace) -> None:
    """Many `launch --force` of one name compete: exactly one complete experiment is left."""
    launchers = []
    # With fixed ports, the launches also compete for the ports.
    has_fixed_ports = workspace.random.random() < 0.2
    if workspace.random.random() < 0.5:
        workspace.launch(workspace.experiment(has_fixed_ports=has_fixed_ports))
    for _ in range(workspace.count(4, 12)):
        experiment = workspace.experiment(has_fixed_ports=has_fixed_ports)
        launchers.append(workspace.start_launch(experiment, "--force"))
        if workspace.random.random() < 0.5:
            workspace.sleep()
    for launcher in launchers:
        workspace.expect(launcher, "launch", "--force", is_permitted=is_success)
    _check_one_run(workspace)
    workspace.refuse(checks.not_running(workspace.status()))


@trial("delete-and-launch")
def delete_and_launch(workspace: Workspace) -> None:
    """Two programs delete and launch one name: at the end, one experiment runs or none."""
    for _ in range(workspace.count(2, 8)):
        clients = [_random_client(workspace) for _ in range(2)]
        for child, words in clients:
            workspace.expect(child, *words)
    _check_one_run(workspace)


def _random_client(workspace: Workspace) -> tuple[Child, tuple[str, ...]]:
    words = workspace.random.choice((("launch",), ("launch", "--force"), ("delete", "--force")))
    if words[0] == "delete":
        return workspace.start_command(*words, NAME), words
    experiment = workspace.experiment(has_fixed_ports=False)
    return workspace.start_launch(experiment, *words[1:]), words


def _check_one_run(workspace: Workspace) -> None:
    """Check that only processes of the listed experiment run, and that all of its processes do."""
    workspace.note_runs()
    runs = workspace.run_ids()
    workspace.refuse(checks.several_runs(workspace.processes(), runs))
    if runs:
        workspace.check_status()
        workspace.refuse(checks.not_running(workspace.status()))
