"""The interface between a supervisor and the backend that starts its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket

    from symphony.plan.state import Track
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.supervisor.event_loop import EventLoop


class Child(Protocol):
    """A process that has been started and whose exit has not been reported yet.

    For the unit of ``birth``, see `symphony.supervised.processes.identity.ProcessId`.
    """

    @property
    def name(self) -> str:
        """The process's name within its experiment."""

    @property
    def pid(self) -> int:
        """The pid of the process, which also identifies its process group."""

    @property
    def birth(self) -> float:
        """The creation time of the process."""


class ExitCallback(Protocol):
    """A function that is called when a child has exited."""

    def __call__(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        """Handle the exit of ``child``.

        ``code`` is the exit code, or 128 + n if signal n killed the child. If the exit was not
        observed, ``code`` is None, and ``reason`` explains why. ``log_bytes`` is the length of the
        child's log at its exit. Readers on other machines need it, because they may not see the
        whole log yet.
        """


class StartRefused(OSError):
    """A process could not be started, for a reason other than its command or working directory.

    ``strerror`` contains the complete explanation.
    """


class JoinableTerminal(Protocol):
    """The terminal of a process with the setting ``tty``."""

    def join(self, client: socket.socket, received: bytes) -> str:
        """Relay a client; see `symphony.supervised.supervisor.terminal_server.Terminal.join`."""


class Children(Protocol):
    """An object that starts processes and reports their exits.

    Each process is the leader of its own process group.
    """

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        """Prepare to start processes. The event loop calls ``on_exit`` for each child that has
        exited.
        """

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, Child | OSError]]:
        """Start processes in the given order. Each process's output is written to its log.

        A process's own variables override the variables in ``env``. Yield each process's
        specification together with its child as soon as the child is running, or together with the
        error that prevented the start.
        """

    def adopt(
        self, processes: Iterable[ProcessSpec], tracks: Mapping[str, Track]
    ) -> Iterable[Child]:
        """Take over the processes of a killed supervisor, and return them.

        ``tracks`` contains the recorded states. The result contains each process that is recorded
        as running. If such a process has exited in the meantime, the exit is reported as usual. The
        result also contains each running process whose start the supervisor did not record any
        more.
        """

    def get(self, name: str) -> Child | None:
        """Return the running child with the given name, or None if there is none."""

    def keep_terminals(self, is_needed: Callable[[str], bool]) -> None:
        """Keep the terminal of a process open, after the process has exited, as long as
        ``is_needed`` returns true for its name. Its exit is reported afterwards.

        Do nothing if no process has a terminal that closes when the process exits.
        """

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running child that a client can join, or None.

        None also means that clients reach the terminal in another way.
        """

    def __len__(self) -> int:
        """Return the number of running children."""

    def change(self, names: Sequence[str], env: Mapping[str, str]) -> None:
        """Prepare to start processes of a changed experiment.

        ``names`` contains all processes of the experiment, and ``env`` its shared variables.
        """

    def remove(self, name: str) -> None:
        """Remove what an exited process has left behind that a change has removed."""

    def discard(self) -> None:
        """Remove everything that the children of a rolled-back launch have left behind."""
