"""Trials in which commands are interrupted at moments that are spread over their durations."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from symphony.status import State
from torture import checks
from torture.trial import trial
from torture.trials.killing import send
from torture.workspace import (
    KUBE,
    LOCAL,
    NAME,
    TMUX,
    Workspace,
    is_any_code,
    is_success,
)

FIRST_UP, UP, SCALE, RESTART, STOP, DELETE = "first up", "up", "scale", "restart", "stop", "delete"
_MOST_COPIES = 4
# A moment can also be shortly after the end of a command.
_LONGEST_FACTOR = 1.2
_GRACE_SECONDS = 1
# How often a trial waits for the result of the attack before it repeats the command.
_WAITS = 0.7
_PAUSE_SECONDS = 0.1
# The messages of a command that is refused while an interrupted one is still in progress.
_REFUSALS = ("try again", "another command is launching")
_LONGEST_OUTAGE_SECONDS = 5.0
# A command that waits for the answer to a lost request notices this late.
_OUTAGE_TIMEOUT_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class _Description:
    """An experiment: the texts of its single processes, and the number of copies of ``agent``."""

    texts: Mapping[str, str]
    copies: int
    has_order: bool

    def processes(self) -> dict[str, str]:
        """Return the text of each process."""
        agents = {f"agent-{number}": "agent" for number in range(self.copies)}
        return {**self.texts, **agents}


@trial("interrupt", backends=[LOCAL, TMUX, KUBE])
def interrupt_commands(workspace: Workspace) -> None:
    """Commands are interrupted by a kill of the client or of the supervisor at random moments, and
    on Kubernetes by an interruption of the connection to the API server.

    Afterwards, the state must be the old one or the new one, and the repeated command must finish
    the work.
    """
    description = _random_description(workspace)
    path = _write(workspace, description)
    first = _Interruption(workspace, FIRST_UP, ("up", str(path)), {}, description.processes())
    first.is_new = first.has_new_processes
    first.perform()
    verbs = [UP, SCALE, RESTART, STOP]
    workspace.random.shuffle(verbs)
    for verb in verbs[: workspace.count(1, len(verbs))]:
        description = _VERBS[verb](workspace, description)
    _interrupt_delete(workspace, description)


class _Interruption:
    """A command that is interrupted.

    ``old`` and ``new`` contain the texts of the processes that run before and after the command.
    ``is_new`` returns whether the new state has been reached. By default, the processes that are in
    both are not restarted.
    """

    def __init__(
        self,
        workspace: Workspace,
        verb: str,
        words: tuple[str, ...],
        old: Mapping[str, str],
        new: Mapping[str, str],
    ) -> None:
        self.workspace = workspace
        self.verb = verb
        self.words = words
        self.old, self.new = old, new
        self.before = workspace.running_texts()
        self.is_new: Callable[[], bool] = self._has_kept_unchanged

    def perform(self) -> None:
        """Interrupt the command, check the state, repeat the command and check the state again."""
        workspace = self.workspace
        duration = workspace.duration(self.verb)
        if duration is None:
            began = time.monotonic()
            workspace.run(*self.words, is_permitted=is_success)
            workspace.note_duration(self.verb, time.monotonic() - began)
        else:
            self._attack(duration)
            workspace.run("ps", NAME)
            if workspace.random.random() < _WAITS:
                workspace.wait_for(
                    self._is_consistent,
                    lambda: [f"{self.verb}: a part was done: {self._describe()}"],
                )
            self._repeat()
        workspace.wait_for(
            lambda: self.is_new() and self._is_quiet(),
            lambda: [f"{self.verb}: the repeated command did not finish: {self._describe()}"],
        )
        workspace.note_runs()
        workspace.check_status()

    def _attack(self, duration: float) -> None:
        workspace = self.workspace
        attack = workspace.random.choice(workspace.interruptions)
        delay = workspace.random.uniform(0.0, _LONGEST_FACTOR * duration)
        workspace.note_moment(self.verb, attack)
        command = workspace.start_command(*self.words)
        time.sleep(delay)
        if attack in ("client", "both"):
            command.kill()
        if attack in ("supervisor", "both"):
            for supervisor in workspace.supervisors():
                send(supervisor, signal.SIGKILL)
        is_killed = attack in ("client", "both")
        if attack.endswith("connection"):
            with workspace.interrupted_connection(attack):
                time.sleep(workspace.random.uniform(0.0, _LONGEST_OUTAGE_SECONDS))
        is_permitted = _any if is_killed else is_any_code
        timeout = _OUTAGE_TIMEOUT_SECONDS
        workspace.expect(command, *self.words, is_permitted=is_permitted, timeout=timeout)
        workspace.note_runs()

    def _repeat(self) -> None:
        """Run the command again. It can be refused while the interrupted one is in progress."""
        deadline = time.monotonic() + checks.on_busy_machine(self.workspace.settle_seconds)
        while True:
            command = self.workspace.start_command(*self.words)
            code = self.workspace.expect(command, *self.words)
            if code == 0:
                return
            is_refused = any(words in command.errors for words in _REFUSALS)
            if not is_refused or time.monotonic() > deadline:
                line = (command.errors.strip().splitlines() or ["no message"])[-1]
                self.workspace.refuse([f"the repeated {self.verb} exited with {code}: {line}"])
            time.sleep(_PAUSE_SECONDS)

    def _is_consistent(self) -> bool:
        """Return whether the state is the old or the new one."""
        # The previous command may have been too early to notice that the supervisor was killed. A
        # command that reads the status starts a new one.
        self.workspace.status()
        running = self.workspace.running_texts()
        is_old = running == self.before
        if self.verb == DELETE and not running:
            # The status shows an experiment that was stopped and is not deleted yet.
            return True
        if (is_old or self.is_new()) and self._is_quiet():
            return True
        # On Kubernetes, what a killed client has begun can remain unfinished.
        return self.workspace.backend == KUBE and self._is_reported()

    def _is_reported(self) -> bool:
        """Return whether the status or the difference shows that a part was not done."""
        status = self.workspace.status()
        if status is None or any(item.reason or item.state is State.PENDING for item in status):
            return True
        if self.verb not in (FIRST_UP, UP, SCALE):
            return False
        words = self.words if self.verb == SCALE else ("diff", *self.words[1:], "--json")
        if self.verb == SCALE:
            return "unchanged" not in self.workspace.run(*words, "--dry-run")
        command = self.workspace.start_command(*words)
        return self.workspace.expect(command, *words) == 1

    def _is_quiet(self) -> bool:
        """Return whether no process is being started or stopped."""
        status = self.workspace.status()
        if status is None:
            return not self.workspace.running_texts()
        return all(
            (process.state is State.RUNNING and process.kill_at is None) or process.stopped
            for process in status
        )

    def has_new_processes(self) -> bool:
        """Return whether exactly the new processes are running, each of them once."""
        running = self.workspace.running_texts()
        status = self.workspace.status()
        names = set() if status is None else {process.name for process in status}
        return running.keys() == set(self.new.items()) and (
            names == self.new.keys() or not self.new
        )

    def _has_kept_unchanged(self) -> bool:
        running = self.workspace.running_texts()
        kept = self.before.keys() & running.keys()
        return self.has_new_processes() and all(
            self.before[process] == running[process] for process in kept
        )

    def _describe(self) -> str:
        workspace = self.workspace
        status = workspace.status()
        shown = "no experiment"
        if status is not None:
            shown = ", ".join(
                f"{process.name} {process.state.value} {process.reason!r}" for process in status
            )
        return (
            f"{' '.join(self.words)}: {self.before} should become {sorted(self.new.items())}, "
            f"but {workspace.running_texts()} runs; status: {shown}"
        )


def _interrupt_up(workspace: Workspace, old: _Description) -> _Description:
    new = _random_description(workspace)
    words = ("up", str(_write(workspace, new)))
    _Interruption(workspace, UP, words, old.processes(), new.processes()).perform()
    workspace.run("diff", words[1], is_permitted=is_success)
    return new


def _interrupt_scale(workspace: Workspace, old: _Description) -> _Description:
    counts = [number for number in range(1, _MOST_COPIES + 1) if number != old.copies]
    new = _Description(old.texts, workspace.random.choice(counts), old.has_order)
    words = ("scale", NAME, f"agent={new.copies}")
    _Interruption(workspace, SCALE, words, old.processes(), new.processes()).perform()
    return new


def _interrupt_restart(workspace: Workspace, old: _Description) -> _Description:
    names = _random_names(workspace, old)
    processes = old.processes()
    step = _Interruption(workspace, RESTART, ("restart", NAME, *names), processes, processes)
    targets = set(names) or processes.keys()

    def is_new() -> bool:
        running = workspace.running_texts()
        changed = {
            name
            for (name, text), identity in running.items()
            if step.before.get((name, text)) != identity
        }
        return step.has_new_processes() and changed == targets

    step.is_new = is_new
    step.perform()
    return old


def _interrupt_stop(workspace: Workspace, old: _Description) -> _Description:
    names = _random_names(workspace, old)
    stopped = set(names) or old.processes().keys()
    rest = {name: text for name, text in old.processes().items() if name not in stopped}
    step = _Interruption(workspace, STOP, ("stop", NAME, *names), old.processes(), rest)
    # The stopped processes remain part of the experiment.
    step.is_new = lambda: (
        workspace.running_texts()
        == {
            process: identity
            for process, identity in step.before.items()
            if process[0] not in stopped
        }
    )
    step.perform()
    workspace.run("start", NAME, is_permitted=is_success)
    workspace.wait_for(
        lambda: workspace.running_texts().keys() == set(old.processes().items()),
        lambda: [f"start: {old} should run, not {workspace.running_texts()}"],
    )
    return old


def _interrupt_delete(workspace: Workspace, old: _Description) -> None:
    step = _Interruption(workspace, DELETE, ("delete", "--force", NAME), old.processes(), {})
    step.is_new = lambda: not workspace.running_texts() and workspace.status() is None
    step.perform()


_VERBS = {
    UP: _interrupt_up,
    SCALE: _interrupt_scale,
    RESTART: _interrupt_restart,
    STOP: _interrupt_stop,
}


def _random_description(workspace: Workspace) -> _Description:
    """Return a random experiment. A text contains a setting, the order and a port."""
    choice = workspace.random.choice
    count = workspace.count(2, 5)
    has_order = choice((True, False))
    chosen = [number for number in range(count) if workspace.random.random() < 0.8] or [0]
    texts = {
        f"p-{number}": f"{choice('ab')} {int(has_order)} {choice((0, 0, 0, 50)) + number}"
        for number in chosen
    }
    return _Description(texts, workspace.random.randint(1, _MOST_COPIES), has_order)


def _random_names(workspace: Workspace, description: _Description) -> tuple[str, ...]:
    """Return some processes, or none, which stands for all of them."""
    names = sorted(description.processes())
    if workspace.random.random() < 0.5 or len(names) == 1:
        return ()
    return tuple(workspace.random.sample(names, workspace.random.randint(1, len(names) - 1)))


def _write(workspace: Workspace, description: _Description) -> Path:
    """Write the file of an experiment, and return its path."""
    processes: dict[str, object] = {}
    for name, text in description.texts.items():
        setting, _, port = text.split()
        ignored = "trap '' TERM; " if setting == "b" else ""
        process: dict[str, object] = {
            "cmd": f"{ignored}exec sleep 100000",
            "env": {"TEXT": text},
            "termination_grace_period": _GRACE_SECONDS,
            # A process without connections does not depend on the ports of the others.
            "binds": {f"service-{name}": workspace.ports[int(port)]},
            "connects": [f"service-{name}"],
        }
        first = min(description.texts)
        if description.has_order and name != first:
            process["starts_after"] = [first]
        processes[name] = process
    processes["agent"] = {
        "cmd": "exec sleep 100000",
        "replicas": description.copies,
        "env": {"TEXT": "agent"},
        "termination_grace_period": _GRACE_SECONDS,
        "connects": [],
    }
    path = workspace.directory / "interrupt.json"
    path.write_text(json.dumps({"name": NAME, "processes": processes}))
    return path


def _any(_: int) -> bool:
    return True
