"""The tmux backend: a `HostCluster` with a tmux window for each process."""

from __future__ import annotations

import functools
import importlib.util
import re
from typing import Any, ClassVar

from symphony.errors import SpecError, shown
from symphony.model.settings.durations import parse_positive_duration
from symphony.supervised.cluster import HostCluster
from symphony.supervised.host_backend import HostBackend
from symphony_tmux.backend import TmuxBackend, TmuxServerOptions
from symphony_tmux.tmux_commands import ANSWER_TIMEOUT_SECONDS, DEFAULT_SERVER

# libtmux is not imported here, because the import would delay every launch.
if importlib.util.find_spec("libtmux") is None:
    raise ModuleNotFoundError("No module named 'libtmux'", name="libtmux")

USERS_SERVER = "default"
# Longer times cannot be represented in the time functions of the operating system.
MAX_SECONDS = 1e9


class TmuxCluster(HostCluster):
    """The tmux backend, which runs each process on this machine in a window of symphony's tmux
    server.

    Each experiment is a session that has the experiment's name. Each process has a window called
    ``process`` or ``group:process``. The windows are in declaration order. A window stays open
    after its process has exited. A process's output is shown in its window, and the complete output
    is in its log.

    ``server_name`` is the name of the tmux server (tmux's ``-L``). The server has the time
    ``answer_within`` to respond, in seconds or with a unit such as ``"1m"``. The other options are
    those of `HostCluster`.
    """

    backend: ClassVar[str] = "tmux"
    children: ClassVar[str] = "symphony_tmux.children:TmuxChildren"

    def __init__(
        self,
        *,
        server_name: str = DEFAULT_SERVER,
        answer_within: float | str = ANSWER_TIMEOUT_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._answer_within = float(
            parse_positive_duration(answer_within, "answer_within", maximum=MAX_SECONDS)
        )
        self._server_name = _server_name(server_name)

    @functools.cached_property
    def implementation(self) -> HostBackend:
        """The part of the cluster that launches, reads and controls experiments."""
        server = TmuxServerOptions(self._server_name, self._answer_within)
        return TmuxBackend(self._host_options(), server)


def _server_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)
        or name.startswith(".")
    ):
        raise SpecError(f"server_name must be letters, digits, '-', '_' and '.', not {shown(name)}")
    if name == USERS_SERVER:
        raise SpecError(
            f"server_name {USERS_SERVER!r} is your own tmux server, which symphony does not use; "
            "choose another name"
        )
    return name
