"""The actions that an executor takes next. Each is data, and prints as one line of English.

An executor carries actions out and reports what it observes; see `symphony.plan.observation`. It
decides nothing. ``cause`` says why an action follows, or is ``""``. Times are in seconds since the
epoch.

The actions are named tuples, because a supervisor imports this module at its start, and a data
class takes ten times as long to create.
"""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """Start a process as the execution number ``attempt``.

    An executor that has begun this attempt already does nothing.
    """

    process: str
    cause: str = ""
    attempt: int = 0

    def __str__(self) -> str:
        return f"start {self.process} ({self.cause})" if self.cause else f"start {self.process}"


class Stop(NamedTuple):
    """Begin to stop a process and what remains in its process group.

    ``kill_at`` is the time at which it is killed. If the process is already being stopped, this
    time becomes earlier, and no second signal is sent.
    """

    process: str
    cause: str = ""
    kill_at: float = 0.0

    def __str__(self) -> str:
        return _line("stop", self.process, self.cause)


class Kill(NamedTuple):
    """Kill a process and what remains in its process group."""

    process: str
    cause: str = ""

    def __str__(self) -> str:
        return _line("kill", self.process, self.cause)


class Clear(NamedTuple):
    """Look for the programs that the previous executions of a process have left behind, and stop
    them.

    They receive the stop signal at once, and are killed at ``kill_at``. If ``spares_commands`` is
    true, commands that users run in the environment of the process continue.
    """

    process: str
    cause: str = ""
    kill_at: float = 0.0
    spares_commands: bool = True

    def __str__(self) -> str:
        return _line("stop the remains of", self.process, self.cause)


class Reserve(NamedTuple):
    """Reserve the resources of a process that a request starts again, such as its GPUs."""

    process: str
    cause: str = ""

    def __str__(self) -> str:
        return _line("reserve the resources of", self.process, self.cause)


class Remove(NamedTuple):
    """Remove what is left of a process that has exited and does not belong to the experiment any
    more, and forget it.
    """

    process: str
    cause: str = ""

    def __str__(self) -> str:
        return _line("remove", self.process, self.cause)


class Release(NamedTuple):
    """Release what the experiment does not need any more after its change number ``revision``,
    such as the ports of removed services.
    """

    revision: int

    def __str__(self) -> str:
        return f"release the resources that change {self.revision} has replaced"


class Sweep(NamedTuple):
    """Look for programs of the experiment that belong to no running process, and stop them.

    They receive the stop signal once, or are killed if ``kill`` is true.
    """

    kill: bool = False

    def __str__(self) -> str:
        return f"{'kill' if self.kill else 'stop'} the programs that belong to no process"


class Answer(NamedTuple):
    """Answer the request ``number``. ``error`` is what was not done, or ``""``."""

    number: int
    error: str = ""

    def __str__(self) -> str:
        return f"answer request {self.number}: {self.error or 'done'}"


class Finish(NamedTuple):
    """Release everything and end: nothing of the experiment is running, and nothing starts again.

    If ``is_evicted`` is true, the system starts the experiment again later.
    """

    is_evicted: bool = False

    def __str__(self) -> str:
        return "end until the system starts the experiment again" if self.is_evicted else "finish"


Action = Start | Stop | Kill | Clear | Reserve | Remove | Release | Sweep | Answer | Finish


class Update(NamedTuple):
    """Replace the description of a running process, or of the experiment if ``process`` is ``""``.

    Nothing is stopped or started. No executor has to do it: a changed `symphony.plan.wish.Wish` has
    this effect.
    """

    process: str
    cause: str = ""

    def __str__(self) -> str:
        return _line("update", self.process or "the experiment", self.cause)


class Relaunch(NamedTuple):
    """Delete the experiment and launch it again, which only a user can decide."""

    cause: str = ""
    process: str = ""

    def __str__(self) -> str:
        return f"launch the experiment again: {self.cause}"


# What follows from the difference between a running experiment and a new description of it.
ChangeAction = Relaunch | Update | Stop | Remove | Start


def _line(verb: str, process: str, cause: str) -> str:
    return f"{verb} {process}: {cause}" if cause else f"{verb} {process}"
