"""The interface between a supervisor and the backend that starts its processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import EventLoop


class Child(Protocol):
    """A process that was started and whose exit has not been reported.

    ``birth`` is the creation time; see `symphony.host.processes.identity.ProcessId`.
    """

    @property
    def name(self) -> str:
        """Return the name of the process in its experiment."""

    @property
    def pid(self) -> int:
        """Return the pid of the process, which also identifies its process group."""

    @property
    def birth(self) -> float:
        """Return the creation time of the process."""


class ExitCallback(Protocol):
    """A function that is called with a child that has exited."""

    def __call__(self, child: Child, code: int | None, reason: str = "") -> None:
        """Handle the exit of ``child``.

        ``code`` is the exit code, or 128 + n for signal n. If the exit was not observed, ``code``
        is None, and ``reason`` explains why.
        """


class StartRefused(OSError):
    """A process was not started, and the reason is neither its command nor its directory.

    ``strerror`` contains the complete explanation.
    """


class Children(Protocol):
    """Starts processes, each as the leader of its own process group, and reports their exits."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        """Prepare for starting processes. The event loop calls ``on_exit``."""

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, Child | OSError]]:
        """Start processes in order. The output of each process goes to its log.

        The variables of a process override the variables in ``env``. Yield each process as soon as
        it is running, or with the error that prevented its start.
        """

    def get(self, name: str) -> Child | None:
        """Return the running child with that name, or None."""

    def __len__(self) -> int:
        """Return the number of running children."""

    def discard(self) -> None:
        """Remove everything that the children of a launch leave behind when the launch is
        rolled back.
        """
