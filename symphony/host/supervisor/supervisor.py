"""The supervisor: the parent of an experiment's processes, detached from whoever launched it.

It starts them in their order, learns of their ends, restarts them, probes their readiness, stops them, and
writes all of it to the event log, from which everybody else reads. It decides by `policy` on the same fold
of the same events.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.host.processes.children import Child, Children, Ended, StartRefused, signal_group
from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import CannotLook, Command
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import apply, encode, fold
from symphony.host.supervisor import restart_policy
from symphony.host.supervisor.event_loop import Loop
from symphony.host.supervisor.log_times import Growth
from symphony.plan import start_order
from symphony.status import ENDED, State

LOOK_AGAIN = 0.05
TAKE_BACK_GRACE = 1.0
PROBE_FIRST, PROBE_LONGEST = 0.05, 1.0

STOP, STOP_AT_ONCE = signal.SIGTERM, signal.SIGQUIT


class LaunchRefused(Exception):
    """A process could not be started while the experiment was being launched."""


class Supervisor:
    """One experiment. ``holds`` are descriptors by port, ``gpus`` descriptors by process; both are let go in time."""

    def __init__(
        self,
        run: RunDirectory,
        run_id: str,
        commands: Mapping[str, Command],
        env: Mapping[str, str],
        children: Callable[[Loop, RunDirectory, Ended], Children],
        *,
        holds: dict[int, int] | None = None,
        gpus: dict[str, list[int]] | None = None,
        backoff: restart_policy.Backoff | None = None,
    ) -> None:
        self._dir = run
        self._run_id = run_id
        self._commands = commands
        self._env = env
        self._holds = holds or {}
        self._gpus = gpus or {}
        self._backoff = backoff or restart_policy.Backoff()
        self._state = fold(commands, [])
        self._events = os.open(
            run.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._loop = Loop()
        self._children = children(self._loop, run, self._ended)
        self._growth = Growth(self._loop, run)
        self._closing: dict[str, int] = {}
        self._followers = _followers(commands)
        self._sweep_until: float | None = None
        self._swept: set[ProcessId] = set()
        self._at_once = False
        self._loop.on_signal(STOP, self.stop)
        self._loop.on_signal(STOP_AT_ONCE, self._kill)
        for ignored in (
            signal.SIGINT,
            signal.SIGHUP,
        ):  # handled, not ignored: children inherit what is ignored
            self._loop.on_signal(ignored, lambda: None)

    # --- the way through ---

    def launch(self) -> None:
        """Start all that can start now. `LaunchRefused` where one cannot; `take_back` then undoes the rest."""
        self._record("launched")
        self._consider(self._commands, launching=True)

    def run(self) -> None:
        """Supervise until all has ended."""
        self._loop.post(self._finish_if_over)
        self._loop.run()

    def take_back(self) -> None:
        """Stop what a failed launch had started, and wait until it has gone."""
        self._loop.after(TAKE_BACK_GRACE, self._kill)
        self.stop()
        self.run()
        self._children.discard()

    def stop(self) -> None:
        """TERM to everything; KILL to what is left after its grace period."""
        if self._state.stopping:
            return
        self._record("stopping")
        for name, track in self._state.tracks.items():
            child = self._children.get(name)
            if child is not None:
                signal_group(child.pid, signal.SIGTERM)
                self._loop.after(
                    self._commands[name].grace, lambda child=child: self._kill_child(child)
                )  # type: ignore[misc]
            elif track.state is State.PENDING:
                word = "started" if track.started is None else "restarted"
                self._record("never", name, reason=f"stopped before it {word}", stopped=True)
        if self._children:
            self._sweep()
        self._finish_if_over()

    def _kill(self) -> None:
        """Stop now, without grace."""
        self._at_once = True
        self.stop()
        for name in self._commands:
            child = self._children.get(name)
            if child is not None:
                signal_group(child.pid, signal.SIGKILL)
        for group in self._closing.values():
            signal_group(group, signal.SIGKILL)

    def _kill_child(self, child: Child) -> None:
        if self._children.get(child.name) is child:
            signal_group(child.pid, signal.SIGKILL)

    # --- starting ---

    def _consider(self, names: Iterable[str], *, launching: bool = False) -> None:
        """Start those that may start, all at once, then those that their start or refusal lets go on."""
        while names and not self._state.stopping:
            may_start: list[str] = []
            decided: list[str] = []
            for name in dict.fromkeys(names):
                verdict = self._verdict(name)
                if verdict is start_order.START:
                    may_start.append(name)
                elif verdict is not None and verdict.word == "never":
                    self._record("never", name, reason=verdict.reason)
                    decided.append(name)
                elif verdict is not None and verdict.reason != self._state.tracks[name].reason:
                    self._record("waiting", name, reason=verdict.reason)
            self._start(may_start, launching=launching)
            names = [
                follower
                for name in (*may_start, *decided)
                for follower in self._followers.get(name, ())
            ]
        if not launching:
            self._finish_if_over()

    def _verdict(self, name: str) -> start_order.Verdict | None:
        """What holds for a process that has never started; None for one that has, or never will."""
        track = self._state.tracks[name]
        if track.state is not State.PENDING or track.started is not None:
            return None
        return start_order.verdict(self._commands[name].starts_after, self._state.tracks)

    def _start(self, names: Sequence[str], *, launching: bool = False) -> None:
        commands = [self._commands[name] for name in names]
        for command in commands:
            self._release_ports(command)
        begins = {
            command.name: _size(self._dir.log(command.name))
            for command in commands
            if command.ready
        }
        for command, child in self._children.start(commands, self._env):
            if isinstance(child, OSError):
                reason = _cannot_start(command, child)
                if launching:
                    raise LaunchRefused(f"process {command.path!r} {reason}") from child
                self._record("never", command.name, reason=reason)
                continue
            self._record(
                "started", child.name, pid=child.pid, birth=child.birth, ready=command.ready is None
            )
            if command.ready is not None:
                self._probe(child, begins[child.name])
        self._loop.post(lambda: self._growth.watch(names))

    def _release_ports(self, command: Command) -> None:
        for port in command.releases:
            hold = self._holds.pop(port, None)
            if hold is not None:
                os.close(hold)

    # --- readiness ---

    def _probe(self, child: Child, log_begins: int) -> None:
        command = self._commands[child.name]
        look = command.probe(self._dir.log(child.name), log_begins, {**self._env, **command.env})
        deadline = time.monotonic() + command.ready_timeout
        pause = PROBE_FIRST

        def attempt() -> None:
            if self._children.get(child.name) is child and not self._state.stopping:
                threading.Thread(target=ask, daemon=True).start()

        def ask() -> None:
            try:
                yes, why = look(), ""
            except CannotLook as exc:
                yes, why = False, f": {exc}"
            self._loop.post(lambda: heard(yes, why))

        def heard(yes: bool, why: str) -> None:
            nonlocal pause
            if self._children.get(child.name) is not child or self._state.stopping:
                return
            if yes:
                self._record("ready", child.name)
            elif time.monotonic() >= deadline:
                self._record(
                    "not-ready",
                    child.name,
                    reason=f"not ready within {command.ready_timeout:g} s{why}",
                )
            else:
                self._loop.after(min(pause, max(0.0, deadline - time.monotonic())), attempt)
                pause = min(pause * 1.5, PROBE_LONGEST)
                return
            self._consider(self._followers.get(child.name, []))

        attempt()

    # --- ending ---

    def _ended(self, child: Child, code: int | None, reason: str = "") -> None:
        name, now = child.name, time.time()
        track = self._state.tracks[name]
        details: dict[str, Any] = {"code": code, "reason": _reason(code, reason)}
        again = None
        if self._state.stopping:
            details.update(stopped=True, reason="stopped")
        else:
            again = restart_policy.restart(
                self._commands[name].restart, track, code, now, self._backoff
            )
        if again is not None:
            details.update(
                restarts_in=again.delay, in_row=again.in_row, reason=_backing_off(again, code)
            )
        if again is None:  # before it is told: who hears of the end may launch what needs them
            self._release_gpus(name)
        self._record("exited", name, at=now, **details)
        if again is not None:
            self._loop.after(again.delay, lambda: self._restart(name))
        if signal_group(child.pid, 0 if self._state.stopping else signal.SIGTERM):
            self._close(name, child.pid)
        self._consider(self._followers.get(name, []))

    def _restart(self, name: str) -> None:
        if name in self._closing:
            self._loop.after(LOOK_AGAIN, lambda: self._restart(name))
        elif not self._state.stopping and self._state.tracks[name].state is State.PENDING:
            self._start([name])
            self._finish_if_over()

    def _close(self, name: str, group: int) -> None:
        """What an ended process left in its group has had its TERM; it gets the grace period, then KILL."""
        deadline = time.monotonic() + self._commands[name].grace
        self._closing[name] = group

        def look() -> None:
            late = self._at_once or time.monotonic() >= deadline
            if signal_group(group, signal.SIGKILL if late else 0) and _anyone(group):
                self._loop.after(LOOK_AGAIN, look)
                return
            del self._closing[name]
            self._finish_if_over()

        look()

    def _release_gpus(self, name: str) -> None:
        for descriptor in self._gpus.pop(name, []):
            os.close(descriptor)

    # --- the end ---

    def _finish_if_over(self) -> None:
        if self._children or self._closing or self._state.finished:
            return
        if all(track.state in ENDED for track in self._state.tracks.values()):
            self._finish()

    def _finish(self) -> None:
        if self._sweep():
            self._loop.after(LOOK_AGAIN, self._finish_if_over)
            return
        self._growth.close()
        self._record("finished")
        self._loop.stop()

    def _sweep(self) -> bool:
        """Stop what left its group but carries our mark; whether there is any. TERM at first sight, KILL late."""
        from symphony.host.processes.tree import marked, send

        mine = {child.pid for name in self._commands if (child := self._children.get(name))}
        left = [
            found
            for found in marked(self._run_id)
            if found.pid not in mine and _group(found.pid) not in mine
        ]
        if left and self._sweep_until is None:
            grace = max(command.grace for command in self._commands.values())
            self._sweep_until = time.monotonic() + grace
        late = self._at_once or (
            self._sweep_until is not None and time.monotonic() >= self._sweep_until
        )
        for process in left:
            if late or process not in self._swept:
                send(process, signal.SIGKILL if late else signal.SIGTERM)
                self._swept.add(process)
        return bool(left)

    def _record(
        self, event: str, process: str | None = None, *, at: float | None = None, **details: Any
    ) -> None:
        line: dict[str, Any] = {"event": event, "at": at or time.time()}
        if process is not None:
            line["process"] = process
        line.update(details)
        apply(self._state, line)
        os.write(self._events, encode(line))


def _followers(commands: Mapping[str, Command]) -> dict[str, list[str]]:
    """By process, those that wait for it."""
    result: dict[str, list[str]] = {}
    for name, command in commands.items():
        for other in command.starts_after:
            result.setdefault(other, []).append(name)
    return result


def _cannot_start(command: Command, exc: OSError) -> str:
    if isinstance(exc, StartRefused):
        return exc.strerror or str(exc)
    where = f": {exc.filename}" if exc.filename and exc.filename != command.argv[0] else ""
    return f"cannot be started with {command.argv[0]!r}: {exc.strerror or exc}{where}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(code: int | None, given: str) -> str:
    """What an exit code says of itself, unless a reason was given."""
    if code is None:
        return f"nobody saw its end: {given}"
    if given:
        return given
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            return ""
    return {126: "its command cannot be run", 127: "its command was not found"}.get(code, "")


def _backing_off(again: restart_policy.Restart, code: int | None) -> str:
    pause = f"in {again.delay:g} s" if again.delay else "now"
    return f"restarts {pause} (exit code {'unknown' if code is None else code})"


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _anyone(group: int) -> bool:
    """Whether a group has a member that is not a corpse (one that nobody reaps would be waited for in vain)."""
    from symphony.host.processes.tree import group_members

    return bool(group_members(group))
