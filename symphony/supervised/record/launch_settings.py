"""The settings with which a run was launched, from which a new supervisor can continue the run.

If a supervisor is killed, another program starts a new one. The processes that the new supervisor
starts must not differ from those of the first one, so it must have the same environment and the
same limits. The file contains the environment of the launcher, which can include credentials. It is
therefore private, and it is removed when the experiment has finished or is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
from collections.abc import Mapping
from typing import Any

from symphony.supervised.record.directory import RunDirectory
from symphony.support.data_classes import dataclass, field, fields, replace

_LIMITS = tuple(sorted(value for key, value in vars(resource).items() if key[:7] == "RLIMIT_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """The settings of a launch.

    ``children_options``, ``backoff`` and ``hold_until_bound`` are those of the cluster. The other
    settings are those that the supervisor has inherited from the launcher. ``limits`` maps the
    numbers of resource limits to soft limits.
    """

    children_options: Mapping[str, Any]
    backoff: Mapping[str, float]
    hold_until_bound: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    umask: int = 0o022
    limits: Mapping[str, int] = field(default_factory=dict)
    niceness: int = 0
    processors: tuple[int, ...] = ()

    def with_inherited(self) -> LaunchSettings:
        """Return a copy with the settings that this process has inherited."""
        umask = os.umask(0o077)
        os.umask(umask)
        return replace(
            self,
            environment=dict(os.environ),
            umask=umask,
            limits={str(number): resource.getrlimit(number)[0] for number in _LIMITS},
            niceness=os.getpriority(os.PRIO_PROCESS, 0),
            processors=tuple(sorted(os.sched_getaffinity(0))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary that can be written as JSON."""
        return {each.name: getattr(self, each.name) for each in fields(type(self))}

    def encode(self) -> bytes:
        """Return the contents of the file."""
        return json.dumps(self.to_dict()).encode()

    def apply(self) -> None:
        """Give this process the inherited settings, except for the environment.

        A setting that this process may not change, such as a lower niceness, keeps its value.
        """
        os.umask(self.umask)
        for number, soft in self.limits.items():
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.getrlimit(int(number))
                resource.setrlimit(int(number), (soft, hard))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        with contextlib.suppress(OSError, ValueError):
            os.sched_setaffinity(0, self.processors)


def record(run: RunDirectory, settings: bytes) -> None:
    """Write encoded settings to a new run directory. Raises OSError if that is not possible."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(run.launch_settings, flags, 0o600), "wb") as file:
        file.write(settings)


def load(run: RunDirectory) -> LaunchSettings | None:
    """Return the settings of a run, or None if they are missing or damaged."""
    try:
        return LaunchSettings(**json.loads(run.launch_settings.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
