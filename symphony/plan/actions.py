"""What an executor does next. Each action is data, and prints as one line of plain English.

An executor carries actions out and reports what it observes; see `symphony.plan.observation`. It
decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Action:
    """An action that concerns one process. ``cause`` says why, or is ``""``."""

    process: str
    cause: str = ""

    verb: ClassVar[str] = ""

    def __str__(self) -> str:
        text = f"{self.verb} {self.process}"
        return f"{text}: {self.cause}" if self.cause else text


@dataclass(frozen=True, slots=True)
class Start(Action):
    """Start a process as the execution number ``attempt``.

    An executor that has begun this attempt already does nothing.
    """

    attempt: int = 0

    def __str__(self) -> str:
        return f"start {self.process} ({self.cause})" if self.cause else f"start {self.process}"


@dataclass(frozen=True, slots=True)
class Stop(Action):
    """Begin to stop a process and what remains in its process group.

    ``kill_at`` is the time at which it is killed, in seconds since the epoch. If the process is
    already being stopped, this time becomes earlier, and no second signal is sent.
    """

    kill_at: float = 0.0

    verb: ClassVar[str] = "stop"


@dataclass(frozen=True, slots=True)
class Kill(Action):
    """Kill a process and what remains in its process group."""

    verb: ClassVar[str] = "kill"


@dataclass(frozen=True, slots=True)
class Clear(Action):
    """Look for the programs that the previous executions of a process have left behind, and stop
    them.

    They receive the stop signal at once, and are killed at ``kill_at``, in seconds since the epoch.
    If ``spares_commands`` is true, commands that users run in the environment of the process
    continue.
    """

    kill_at: float = 0.0
    spares_commands: bool = True

    verb: ClassVar[str] = "stop the remains of"


@dataclass(frozen=True, slots=True)
class Reserve(Action):
    """Reserve the resources of a process that a request starts again, such as its GPUs."""

    verb: ClassVar[str] = "reserve the resources of"


@dataclass(frozen=True, slots=True)
class Remove(Action):
    """Remove what is left of a process that has exited and does not belong to the experiment any
    more, and forget it.
    """

    verb: ClassVar[str] = "remove"


@dataclass(frozen=True, slots=True)
class Release:
    """Release what the experiment does not need any more after its change number ``revision``,
    such as the ports of removed services.
    """

    revision: int

    def __str__(self) -> str:
        return f"release the resources that change {self.revision} has replaced"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Look for programs of the experiment that belong to no running process, and stop them.

    They receive the stop signal once, or are killed if ``kill`` is true.
    """

    kill: bool = False

    def __str__(self) -> str:
        return f"{'kill' if self.kill else 'stop'} the programs that belong to no process"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request ``number``. ``error`` is what was not done, or ``""``."""

    number: int
    error: str = ""

    def __str__(self) -> str:
        return f"answer request {self.number}: {self.error or 'done'}"


@dataclass(frozen=True, slots=True)
class Finish:
    """Release everything and end: nothing of the experiment is running, and nothing starts again.

    If ``is_evicted`` is true, the system starts the experiment again later.
    """

    is_evicted: bool = False

    def __str__(self) -> str:
        return "end until the system starts the experiment again" if self.is_evicted else "finish"
