"""Carrying out what `symphony.plan.decide` has decided, and reporting what happens.

An executor decides nothing about an experiment.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symphony.plan.actions import Clear, Kill, Remove, Reserve, Start, Stop, Sweep
from symphony.plan.state import RunState, Track
from symphony.status import ENDED
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.supervisor.children import JoinableTerminal
from symphony.supervised.supervisor.execution.background import BackgroundPrograms
from symphony.supervised.supervisor.execution.executor_context import (
    CHECK_INTERVAL_SECONDS,
    ExecutorContext,
)
from symphony.supervised.supervisor.execution.remains import Remains
from symphony.supervised.supervisor.execution.starter import LaunchRefused, Starter
from symphony.supervised.supervisor.execution.stops_and_exits import StopsAndExits
from symphony.supervised.supervisor.execution.supervised_process import SupervisedProcess


class Executor:
    """The executor of one run. ``env`` contains the variables that its processes share."""

    def __init__(self, context: ExecutorContext, env: Mapping[str, str]) -> None:
        self._run = context.run
        self._loop = context.loop
        self._processes = context.processes
        self._children = context.children
        self._host = context.host
        self._resources = context.resources
        self._notes = context.notes
        self._facts = context.facts
        self.now = context.now
        self._on_error = context.on_error
        self._remains = Remains(
            self._loop, self._processes, self._host, self._facts, self._on_error
        )
        self._children.keep_terminals(self._host.is_stopping)
        limits = self._log_limits()
        self._logs = self._host.record_logs(self._loop, self._run, limits, self._notes)
        self.starter = Starter(context, env, self._logs)
        self._background = BackgroundPrograms(
            self._loop, self._processes, self._host, self._facts, self._on_error
        )
        self.stops_and_exits = StopsAndExits(
            context, self._logs, self.starter, self.free, self._background
        )
        self._is_sweeping = False

    def _log_limits(self) -> dict[str, int]:
        return {name: spec.log_limit for name, spec in self._processes.specs.items()}

    def execute(self, actions: Iterable[Any]) -> None:
        """Carry out actions in this order. Processes that start one after another form a batch."""
        for kind, group in itertools.groupby(actions, type):
            batch = list(group)
            try:
                self._execute(kind, batch)
            except LaunchRefused:
                raise
            except Exception as exc:
                self._on_error(exc)

    def _execute(self, kind: type, batch: Sequence[Any]) -> None:
        if kind is Start:
            for action in batch:
                self._remains.cancel(action.process)
                self._background.cancel(action.process)
            self.starter.start(batch)
        elif kind is Clear:
            self._clear(batch)
        elif kind is Stop:
            self.stops_and_exits.stop_all(batch)
        for action in batch:
            if kind is Kill:
                self.stops_and_exits.kill(self._processes[action.process])
            elif kind is Reserve:
                self._reserve(action)
            elif kind is Remove:
                self.remove(action.process)
            elif kind is Sweep:
                self._sweep(kill=action.kill)

    def _reserve(self, action: Reserve) -> None:
        process = self._processes[action.process]
        if self._resources.lease_gpus(process.spec):
            self._facts.note(process.name, reserved=True)
        else:
            reason = f"another experiment has leased the GPUs of {process.name!r}"
            self._facts.note(process.name, unavailable=reason)

    def _clear(self, actions: Sequence[Clear]) -> None:
        now, monotonic = self.now(), time.monotonic()
        for spares_commands in (True, False):
            kill_times = {
                action.process: monotonic + action.kill_at - now
                for action in actions
                if action.spares_commands == spares_commands
            }
            if kill_times:
                self._remains.clear(kill_times, spares_commands=spares_commands)

    # --- the end of the run ---

    def _sweep(self, *, kill: bool) -> None:
        """Stop the run's processes that are in none of the children's process groups."""
        self._background.look()
        try:
            were_found = self._host.stop_strays(self._processes.leaders(), kill=kill)
        except Exception as exc:
            # The processes of the run cannot be listed. All other steps of a stop must follow.
            self._on_error(exc)
            were_found = False
        self._facts.note_strays(were_found, now=self.now(), killed=kill)
        if were_found and not self._is_sweeping:
            self._is_sweeping = True
            self._loop.after(CHECK_INTERVAL_SECONDS, self._sweep_again)

    def _sweep_again(self) -> None:
        self._is_sweeping = False
        observation = self._facts.observation()
        if observation.strays:
            self._sweep(kill=observation.strays_killed)

    def free(self, name: str) -> None:
        """Release the GPUs of a process that has exited for good.

        Programs that it has left behind in its process group keep the GPUs until they have exited,
        and others until the experiment finishes.
        """
        process = self._processes.get(name)
        if process is None or name not in self._resources.gpus:
            return
        process.is_freed = True
        if not self._host.has_descendants(name, self._processes.leaders()):
            self._resources.release_gpus(name)
            self._facts.note(name, reserved=False)

    def close(self) -> None:
        """Release what the run holds: nothing of it is running, and nothing starts again."""
        self._logs.close()
        self._resources.release_all_gpus()

    # --- changes and new supervisors ---

    def change(self, env: Mapping[str, str]) -> None:
        """Use the changed descriptions of the processes. ``env`` are their shared variables."""
        self.starter.change(env)
        self._logs.set_limits(self._log_limits())

    def remove(self, name: str) -> None:
        """Remove what an exited process has left behind that a change has removed."""
        self._processes.leaving.pop(name, None)
        self._resources.release_gpus(name)
        self._children.remove(name)
        self._facts.forget(name)

    def adopt(self, state: RunState) -> None:
        """Take over the processes of a supervisor that was killed, and their resources."""
        tracks: dict[str, Track] = {**state.tracks, **state.leaving}
        self.starter.adopt(tracks)
        for name, track in tracks.items():
            process = self._processes[name]
            if track.state not in ENDED and not self._resources.lease_gpus(process.spec):
                process.has_lost_gpus = True
        processes = self._processes.present.values()
        problems = [text for process in processes if (text := self._resources.find_lost(process))]
        if problems:
            message = f"{problems[0]}, while the experiment had no supervisor"
            self._notes.set("leases", message)
        for name, track in state.tracks.items():
            process = self._processes[name]
            if track.in_background:
                self._facts.note(
                    name,
                    attempt=track.attempts - 1,
                    exit_code=track.exit_code,
                    background=track.background,
                    in_background=True,
                )
                self._background.note_exit(name)
            if track.group is None or process.child is not None:
                continue
            if self._host.is_group_of_run(track.group, self._processes.leaders()):
                # The creation time of the process that has exited is not known any more.
                process.leftovers = ProcessId(track.group, 0.0)
                self._facts.note(name, attempt=track.attempts - 1, leftovers=True)
        self._facts.note_unknown_strays()

    def is_running(self, process: SupervisedProcess) -> bool:
        """Return whether the child of a process is running. Its exit may not be reported yet."""
        program = process.identity()
        return program is not None and self._host.is_running(process.name, program)

    # --- other steps ---

    def send_signal(
        self, names: Sequence[str], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to the programs of running processes that handle it.

        Return why it cannot be sent to processes; see `ProcessHost.send_signals`.
        """
        leaders = self._processes.leaders()
        return self._host.send_signals({name: leaders[name] for name in names}, number, force=force)

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running process, or None if it has none."""
        return self._children.terminal(name)

    def discard(self) -> None:
        """Remove everything that the processes of a rolled-back launch have left behind."""
        self._children.discard()
