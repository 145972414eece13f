"""What users do: they request, change and stop, and repeat what has not succeeded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from simulate.past import Asked
from simulate.scenario import Happening, Process
from simulate.succession import Succession
from simulate.supervisor import Supervisor
from simulate.wishes import wish_of
from simulate.world import World
from symphony.plan.requests import Refused, accept, check_change, stop_all
from symphony.plan.wish import difference
from symphony.status import ENDED


class Users:
    """The users of an experiment, who talk to its present supervisor."""

    def __init__(self, world: World, succession: Succession) -> None:
        self._world = world
        self._succession = succession

    def request(self, happening: Happening) -> None:
        """Request something of the supervisor, unless the experiment is being stopped."""
        supervisor = self._world.supervisor
        if supervisor is None:
            return
        state = supervisor.state
        if state.is_stopping_all or state.finished or state.created is None:
            return
        if happening.kind in ("up", "scale"):
            self._change(supervisor, happening)
        elif happening.kind == "up-again":
            self._world.check_second_up()
        elif happening.kind == "signal":
            self._signal(supervisor, happening.names)
        else:
            self._request_processes(supervisor, happening)

    def request_down(self, kind: str) -> None:
        """Stop the experiment, at the latest when a supervisor runs again."""
        world = self._world
        supervisor = world.supervisor
        if supervisor is None:
            world.clock.after(0.5, self.request_down, kind)
            return
        if world.has_finished:
            return
        world.is_down_requested = True
        world.stop_begins = world.clock.now
        world.say(f"a user stops the experiment ({kind})")
        is_now = kind == "down-now"
        world.ledger.stop_all(at_once=is_now, kills=is_now)
        supervisor.executor.kills_at_once = supervisor.executor.kills_at_once or is_now
        events = stop_all(supervisor.state, world.clock.now, is_together=is_now)
        for event in events:
            self._succession.guard(partial(supervisor.write, event))
        if not supervisor.state.stopping:
            # The user notices that the supervisor was killed before, and repeats the command.
            world.clock.after(0.5, self.request_down, kind)

    def _request_processes(self, supervisor: Supervisor, happening: Happening) -> None:
        world = self._world
        kind, state, now = happening.kind, supervisor.state, world.clock.now
        known = [name for name in happening.names if name in world.wish.processes]
        if not known:
            return
        try:
            accepted = accept(world.wish, state, kind, known, happening.value, now)
        except Refused as exc:
            world.say(f"a user requests {kind} of {', '.join(known)}, which is refused: {exc}")
            return
        world.say(f"a user requests {kind} of {', '.join(known)}")
        for event in accepted.events:
            names = event["names"]
            concerned = self._concerned(kind, names, supervisor)
            asked = Asked(
                accepted.number, kind, tuple(names), happening.value, now, concerned=concerned
            )
            supervisor.write(event, partial(world.ledger.accept, asked, accepted.prevented))

    def _concerned(self, kind: str, names: list[str], supervisor: Supervisor) -> tuple[str, ...]:
        """Return the processes on which a request has an effect.

        A request to start a process has none if it is being started, as far as the supervisor
        knows, although it can have exited already.
        """
        tracks, machine = supervisor.state.tracks, self._world.machine
        if kind == "stop":
            return tuple(name for name in names if tracks[name].state not in ENDED)
        if kind != "start":
            return tuple(names)
        idle = [name for name in names if not machine.runs(name) and tracks[name].pid is None]
        idle = [name for name in idle if not supervisor.executor.is_starting(name)]
        waiting = [name for name in idle if tracks[name].next_start is not None]
        return tuple(name for name in idle if tracks[name].state in ENDED or name in waiting)

    def _signal(self, supervisor: Supervisor, names: list[str]) -> None:
        for name in names:
            track = supervisor.state.tracks.get(name)
            if track is not None and track.pid is not None:
                event = {"event": "signaled", "at": self._world.clock.now, "process": name}
                supervisor.write({**event, "signal": "SIGUSR1"})

    def _change(self, supervisor: Supervisor, happening: Happening) -> None:
        """Replace the wish, as `up` and `scale` do."""
        world = self._world
        processes = changed_processes(list(world.processes.values()), happening)
        ends_with = [name for name in world.scenario.ends_with if name in processes]
        wish = wish_of(world.scenario, list(processes.values()), ends_with=ends_with)
        found = difference(world.wish, wish)
        changed = [*found.added, *found.removed, *found.restarted]
        revision = supervisor.state.revision + 1
        try:
            check_change(supervisor.state, revision, changed)
        except Refused:
            return
        if not changed:
            return
        event = {
            "event": "changed",
            "at": world.clock.now,
            "revision": revision,
            "added": list(found.added),
            "removed": list(found.removed),
            "restarted": list(found.restarted),
        }
        before = [*found.removed, *found.restarted]
        previous = [world.wish.processes[name] for name in before]
        world.say(f"a user changes the experiment: {found}")
        world.wish = wish_of(
            world.scenario,
            list(processes.values()),
            ends_with=ends_with,
            previous=previous,
            change=event,
        )
        world.processes.update(processes)
        for name in found.removed:
            # The executor still stops it.
            world.processes.pop(name)
        number = supervisor.state.request_count + 1
        names = (*found.added, *found.restarted)
        asked = Asked(number, "change", names, None, world.clock.now, found.removed)
        world.ledger.accept(asked, {}, list(processes.values()))
        world.ledger.experiment.ends_with = ends_with
        supervisor.wish = world.wish
        supervisor.executor.reserve_for(names)
        # The supervisor records the change before it accepts another request.
        supervisor.step()


def changed_processes(processes: list[Process], happening: Happening) -> dict[str, Process]:
    """Return the processes after a change of the scenario."""
    found = {process.name: process for process in processes}
    if happening.kind == "scale":
        return _scaled(found, happening.value)
    name = happening.names[0] if happening.names else ""
    if happening.value == "add" or name not in found:
        number = len(found)
        while f"p{number}" in found:
            number += 1
        found[f"p{number}"] = Process(f"p{number}", grace=2.0)
    elif happening.value == "alter":
        found[name] = replace(found[name], version=found[name].version + 1)
    elif len(found) > 1:
        _remove(found, [name])
    return found


def _scaled(found: dict[str, Process], count: int) -> dict[str, Process]:
    """Return as many processes as a user wants: the last ones go, and copies are added."""
    names = list(found)
    if count and count < len(names):
        _remove(found, names[count:])
        return found
    for number in range(len(names), count):
        name = f"p{number}"
        if name not in found:
            found[name] = replace(found[names[0]], name=name, gang=None, starts_after={})
    return found


def _remove(found: dict[str, Process], names: list[str]) -> None:
    for name in names:
        del found[name]
    for other in list(found.values()):
        rest = {key: value for key, value in other.starts_after.items() if key in found}
        if len(rest) != len(other.starts_after):
            found[other.name] = replace(other, starts_after=rest)
