"""The results of `Cluster`: manifests, results of commands, statuses and tunnels."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from symphony.errors import Unsupported
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.plan.ignored import Ignored
    from symphony.status import ExperimentStatus


class Manifest(abc.ABC):
    """A description of the objects that a backend creates for a plan. A dry run prints this
    description as text.

    The text ends with a newline, because YAML text without a final newline can have a different
    meaning. ``notes`` contains messages about the launch for the user, such as the place where the
    experiment is supervised.
    """

    experiment: str
    ignored: tuple[Ignored, ...]
    notes: tuple[str, ...] = ()

    @abc.abstractmethod
    def __str__(self) -> str: ...

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as a dictionary that can be serialized as JSON."""

    def write(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> None:
        """Write the manifest, including secret values, to a file that only its owner can read.

        With ``dry_run``, make the same checks but write nothing. Raises `Unsupported` if the
        backend's manifests do not contain secret values.
        """
        del path, dry_run
        raise Unsupported(
            f"the manifest of {self.experiment!r} contains no values of secrets on this backend"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The result of a command: its exit code, and its output if it was captured.

    If signal n killed the command, ``exit_code`` is 128 + n.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""


class WatchedStatuses(NamedTuple):
    """The latest known statuses of experiments.

    ``outage`` is a message if the backend cannot be reached at present, so that the statuses can be
    out of date.
    """

    statuses: list[ExperimentStatus]
    outage: str = ""


class Tunnel:
    """A connection from this machine to a process or a service. A tunnel can be used as a context
    manager.

    ``address`` has the form ``host:port``. If ``forwarded`` is true, the address can be used until
    the tunnel is closed. Otherwise, it is the service's own address, and closing the tunnel has no
    effect.
    """

    def __init__(self, address: str, *, close: Callable[[], None] | None = None) -> None:
        self.address = address
        self.forwarded = close is not None
        self._close = close

    def close(self) -> None:
        """Stop forwarding."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
