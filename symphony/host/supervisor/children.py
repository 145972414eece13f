"""The interface between a supervisor and the backend that starts its processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import EventLoop


class Child(Protocol):
    """A process that was started and whose exit has not been reported.

    ``birth`` is its creation time; see `symphony.host.processes.identity.ProcessId`.
    """

    @property
    def name(self) -> str:
        """Return the name of the process in its experiment."""

    @property
    def pid(self) -> int:
        """Return the pid, which also identifies the process group."""

    @property
    def birth(self) -> float:
        """Return the creation time."""


class ExitCallback(Protocol):
    """A function that is called with a child that has exited."""

    def __call__(self, child: Child, code: int | None, reason: str = "") -> None:
        """Handle the exit of ``child``.

        ``code`` is the exit code, 128 + n for signal n. It is None if no process observed the exit,
        and ``reason`` then explains why.
        """


class StartRefused(OSError):
    """A process was not started for a reason other than its command or its directory.

    ``strerror`` has the complete explanation.
    """


class Children(Protocol):
    """Starts processes, each as the leader of its own process group, and reports their exits."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        """Prepare for starting processes. ``on_exit`` is called by the event loop."""

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, Child | OSError]]:
        """Start processes in order, each with its log as output.

        The variables of a process override those of ``env``. Yield each process as soon as it runs,
        or with the error because of which it does not.
        """

    def get(self, name: str) -> Child | None:
        """Return the running child of that name, or None."""

    def __len__(self) -> int:
        """Return the number of running children."""

    def discard(self) -> None:
        """Remove what the children of a launch leave behind when the launch is rolled back."""
