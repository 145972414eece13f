"""Trials in which launchers, supervisors, tmux servers and processes are killed or signaled."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence

from symphony.status import State
from symphony.supervised.processes.identity import is_alive
from symphony.supervised.record.directory import RunDirectory
from torture import checks
from torture.checks import FoundProcess
from torture.children import Child
from torture.trial import trial
from torture.workspace import (
    NAME,
    TMUX,
    Violation,
    Workspace,
    is_any_code,
    is_interrupted_by,
    is_success,
)

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGCHLD,
    signal.SIGWINCH,
    signal.SIGSEGV,
    signal.SIGSTOP,
    signal.SIGCONT,
    signal.SIGKILL,
)


@trial("kill-launcher")
def kill_launcher(workspace: Workspace) -> None:
    """The launcher is killed at a random moment: all of the experiment exists, or nothing of it."""
    processes = workspace.count(3, 30)
    launcher = workspace.start_launch(workspace.experiment(processes=processes))
    workspace.sleep()
    launcher.kill()
    if not workspace.settle():
        return
    workspace.wait_for(
        lambda: len(workspace.sleepers()) == processes,
        lambda: [f"the launched experiment does not have its {processes} processes"],
    )
    workspace.check_status()


@trial("kill-supervisor")
def kill_supervisor(workspace: Workspace) -> None:
    """The supervisor is killed at random moments of a launch, of restarts, or of a delete.

    The next command replaces it, and what it was doing has been done completely or not at all.
    """
    processes = workspace.count(3, 12)
    launcher = workspace.start_launch(workspace.experiment(processes=processes))
    phase = workspace.random.choice(("launch", "change", "change", "delete"))
    if phase != "launch":
        workspace.expect(launcher, "launch", is_permitted=is_success)
    if phase == "change":
        for _ in range(workspace.count(2, 6)):
            _kill_during_a_change(workspace, processes)
        return
    deleting: Child | None = None
    if phase == "delete":
        deleting = workspace.start_command("delete", "--force", NAME)
    workspace.wait_for(
        lambda: bool(workspace.supervisors()) or launcher.poll() is not None,
        lambda: ["no supervisor was started"],
    )
    workspace.sleep()
    for supervisor in workspace.supervisors():
        send(supervisor, signal.SIGKILL)
    workspace.expect(launcher, "launch")
    if deleting is not None:
        workspace.expect(deleting, "delete", is_permitted=is_success)
    if workspace.settle():
        workspace.wait_for(
            lambda: len(_running(workspace)) == processes,
            lambda: checks.not_running(workspace.status()) or ["processes are left over"],
        )
    workspace.check_status()


def _kill_during_a_change(workspace: Workspace, processes: int) -> None:
    """Kill the supervisor, and perhaps the command, while all processes are started or stopped."""
    choice = workspace.random.choice
    # A launch on tmux returns before the commands run.
    workspace.check_status()
    before = _running(workspace)
    words = choice((("restart",), ("restart", "--grace", "0.05"), ("stop",), ("start",)))
    command = workspace.start_command(*words, NAME)
    workspace.sleep()
    is_command_killed = workspace.random.random() < 0.3
    if is_command_killed:
        command.kill()
    for supervisor in workspace.supervisors():
        send(supervisor, signal.SIGKILL)
    workspace.expect(command, *words, is_permitted=_any if is_command_killed else checks.is_usual)
    workspace.run("ps", NAME, is_permitted=is_success)
    after_restart, after_stop = words[0] != "stop", words[0] == "stop"

    def is_complete() -> bool:
        """Return whether the change has been made completely or not at all."""
        now = _running(workspace)
        is_old = now == before
        is_new = (after_restart and len(now) == processes and (not now & before or not before)) or (
            after_stop and not now
        )
        status = workspace.status()
        is_reported = status is not None and all(
            (process.state is State.RUNNING and process.kill_at is None) or process.stopped
            for process in status
        )
        return is_reported and (is_old or is_new)

    workspace.wait_for(
        is_complete,
        lambda: [
            f"{words[0]} was done for a part of the processes: {sorted(before)} became "
            f"{sorted(_running(workspace))}"
        ],
    )
    workspace.check_status()


def _any(_: int) -> bool:
    return True


def _running(workspace: Workspace) -> set[int]:
    return {found.pid for found in workspace.sleepers()}


@trial("kill-guardian")
def kill_guardian(workspace: Workspace) -> None:
    """Supervisors, their guardians or both are killed while processes exit: nothing is typed unless
    both were killed, no process starts twice, and every exit code is known that can be known.
    """
    kills = workspace.count(2, 40)
    codes = _launch_exiting(workspace, max(3, kills))
    running, may_be_unknown = list(codes), set[str]()
    is_guarded = True
    for number in range(kills):
        workspace.sleep()
        attack = workspace.random.choice(("supervisor", "guardian", "both"))
        workspace.note_moment("supervision", attack)
        # So many that some still run when the last kill is over.
        share = 0.9 / (kills - number)
        exiting = [name for name in running if workspace.random.random() < share]
        early = [name for name in exiting if workspace.random.random() < 0.5]
        _let_exit(workspace, early)
        if attack != "supervisor":
            is_guarded = False
        if attack != "guardian" and not is_guarded:
            # The processes are not children of a guardian that records their exits.
            may_be_unknown.update(exiting)
        before = [*workspace.supervisors(), *workspace.guardians()]
        _kill_supervision(workspace, attack)
        _let_exit(workspace, [name for name in exiting if name not in early])
        running = [name for name in running if name not in exiting]
        if not running:
            break
        if attack == "both":
            workspace.run("ps", NAME, is_permitted=is_success)
        _wait_for_supervision(workspace, attack, before)
    _let_exit(workspace, running)
    workspace.run("wait", NAME, is_permitted=is_any_code)
    if workspace.backend == TMUX:
        # tmux keeps the exit codes.
        may_be_unknown.clear()
    _check_exits(workspace, codes, may_be_unknown)
    errors = (workspace.root / NAME / "supervisor.log").read_text()
    if errors:
        raise Violation(f"the supervisor's log is not empty: {errors}")


def _check_exits(
    workspace: Workspace, codes: Mapping[str, int], may_be_unknown: Collection[str]
) -> None:
    """Check the exit codes of all processes, and that each was started once."""
    status = workspace.status()
    if status is None:
        raise Violation("the experiment has vanished")
    for process in status:
        expected, found = codes[process.name], process.exit_code
        if found != expected and not (found is None and process.name in may_be_unknown):
            raise Violation(f"{process.name}: {found} ({process.reason}), not {expected}")
        starts = (workspace.directory / process.name).read_text().count("\n")
        if starts != 1:
            raise Violation(f"{process.name} was started {starts} times")


def _launch_exiting(workspace: Workspace, processes: int) -> dict[str, int]:
    """Launch processes that wait for their end, and return their exit codes by their names."""
    experiment = workspace.cluster().new_experiment(NAME)
    codes: dict[str, int] = {}
    for number in range(processes):
        name, code = f"p-{number}", workspace.random.randrange(100)
        os.mkfifo(workspace.directory / f"{name}-gate")
        script = f"echo started >>{name}; read end <{name}-gate; exit {code}"
        experiment.new_process(
            name, command=["sh", "-c", script], start_dir=str(workspace.directory)
        )
        codes[name] = code
    workspace.launch(experiment)
    return codes


def _let_exit(workspace: Workspace, names: Sequence[str]) -> None:
    for name in names:
        # Opening the pipe waits until the process reads it.
        (workspace.directory / f"{name}-gate").write_text("end\n")


def _kill_supervision(workspace: Workspace, attack: str) -> None:
    victims: list[FoundProcess] = []
    if attack != "guardian":
        victims += workspace.supervisors()
    if attack != "supervisor":
        victims += workspace.guardians()
    workspace.random.shuffle(victims)
    for victim in victims:
        send(victim, signal.SIGKILL)
    # The next command must not find a supervisor that is about to die.
    workspace.wait_for(
        lambda: not any(is_alive(victim.process) for victim in victims),
        lambda: ["a killed process does not exit"],
    )


def _wait_for_supervision(
    workspace: Workspace, attack: str, before: Sequence[FoundProcess]
) -> None:
    """Wait until what was killed is replaced, with nothing typed."""
    run = RunDirectory(workspace.root / NAME)
    killed = {found.pid for found in before} if attack == "both" else set[int]()
    if attack == "supervisor":
        killed = {found.pid for found in before} - {run.guardian()}
    elif attack == "guardian":
        killed = {found.pid for found in before} - {found.pid for found in workspace.supervisors()}

    def is_replaced() -> bool:
        supervisor, guardian = run.supervisor(), run.guardian()
        if supervisor is None or guardian is None or run.is_resuming():
            return False
        return supervisor.pid not in killed and guardian not in killed

    workspace.wait_for(is_replaced, lambda: [f"nothing has replaced the {attack}"])


@trial("kill-tmux", backends=[TMUX])
def kill_tmux(workspace: Workspace) -> None:
    """The tmux server, the session, a window or a keeper is killed at a random moment."""
    launcher = workspace.start_launch(workspace.experiment(processes=workspace.count(3, 30)))
    if workspace.random.random() < 0.5:
        workspace.expect(launcher, "launch", is_permitted=is_success)
    workspace.sleep()
    attack = workspace.random.choice(("server", "kill-server", "session", "window", "keeper"))
    if attack == "kill-server":
        workspace.tmux("kill-server")
    elif attack == "session":
        workspace.tmux("kill-session", "-t", f"={NAME}")
    elif attack == "window":
        workspace.tmux("kill-window", "-t", f"={NAME}:0")
    else:
        _kill_tmux_process(workspace, is_server=attack == "server")
    workspace.expect(launcher, "launch")
    workspace.settle()


def _kill_tmux_process(workspace: Workspace, *, is_server: bool) -> None:
    """Kill the tmux server, or the keeper of one window."""
    servers = workspace.tmux("display-message", "-p", "#{pid}").split()
    keepers = workspace.tmux("list-panes", "-a", "-F", "#{pane_pid}").split()
    for pid in servers if is_server else keepers[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


@trial("signals")
def send_signals(workspace: Workspace) -> None:
    """Random signals are sent to the launcher, the supervisor, tmux and the processes."""
    launcher = workspace.start_launch(workspace.experiment(processes=workspace.count(3, 8)))
    to_launcher: list[int] = []
    for _ in range(workspace.count(5, 20)):
        workspace.sleep()
        number = workspace.random.choice(SIGNALS)
        targets = workspace.processes()
        # One of the targets is the launcher.
        index = workspace.random.randrange(len(targets) + 1)
        if index < len(targets):
            send(targets[index], number)
        else:
            to_launcher.append(number)
            launcher.send(number)
    for found in workspace.processes():
        send(found, signal.SIGCONT)
    launcher.send(signal.SIGCONT)
    workspace.expect(launcher, "launch", is_permitted=is_interrupted_by(to_launcher))
    workspace.settle()


@trial("kill-process")
def kill_process(workspace: Workspace) -> None:
    """Processes are killed at random moments, and all exits are observed."""
    experiment = workspace.experiment(processes=workspace.count(4, 30))
    workspace.launch(experiment)
    workspace.check_status()
    killed = set()
    for found in workspace.sleepers():
        if workspace.random.random() < 0.5:
            send(found, signal.SIGKILL)
            killed.add(found.pid)
            time.sleep(workspace.random.random() * 0.01)

    def are_observed() -> bool:
        status = workspace.status()
        if status is None:
            raise Violation("the experiment has vanished")
        return [item.exit_code for item in status].count(137) == len(killed)

    workspace.wait_for(
        are_observed, lambda: [f"the {len(killed)} killed processes are not all reported"]
    )
    workspace.check_status()


def send(found: FoundProcess, number: int) -> None:
    """Send a signal to a process, if it is still running."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(found.pid, number)
