"""The base class of the backends whose processes run on this machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from symphony.cluster import Cluster
from symphony.errors import SpecError, shown
from symphony.supervised.host_backend import HostBackend
from symphony.supervised.host_options import HostOptions
from symphony.support.directories.state_home import state_root
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    from symphony.model.settings.validators import Strings
    from symphony.plan.restart_policy import Backoff

PORT_HOLD_MODES = ("started", "bound")


class HostCluster(Cluster):
    """A cluster that runs processes on this machine. Each experiment has a detached supervisor.

    A backend sets ``children`` to the ``"module:Class"`` that starts its processes. The supervisor
    imports this class; see `symphony.supervised.supervisor.children.Children`.

    Options:

    * ``state_dir`` is the directory that contains the run directories. The default is a
      subdirectory of SYMPHONY_STATE_DIR, or else of the XDG state directory.
    * ``gpus`` contains the identifiers of the GPUs that launches may lease. The default is the GPUs
      in CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or else all NVIDIA GPUs on the machine, or
      its AMD GPUs if there are none.
    * ``backoff`` sets the delays before restarts.
    * ``hold_ports`` sets how long a port is held for its server. With ``"started"``, the port is
      held until the server starts. With ``"bound"``, the port is held until the experiment
      finishes, so that the port is never free before the server has bound it. ``"bound"`` requires
      servers that set SO_REUSEADDR.
    * With ``snapshot``, processes with `code` run from a copy in the run directory, which later
      edits do not change.
    """

    children: ClassVar[str]
    # The class of `implementation`.
    backend_class: ClassVar[type[HostBackend]] = HostBackend
    commands_run_here: ClassVar[bool] = True
    launch_option_names: ClassVar[tuple[str, ...]] = ("snapshot",)
    ports_are_here: ClassVar[bool] = True

    def __init__(
        self,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        gpus: Sequence[str] | None = None,
        backoff: Backoff | None = None,
        hold_ports: Literal["started", "bound"] = "started",
        snapshot: bool = False,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> None:
        super().__init__(preamble_cmds=preamble_cmds, start_dir=start_dir)
        self._root = state_root(self.backend) if state_dir is None else _state_root(state_dir)
        self._gpus = None if gpus is None else _device_names(gpus)
        if backoff is not None:
            from symphony.model.settings.validators import instance
            from symphony.plan.restart_policy import Backoff

            instance(backoff, Backoff, "backoff")
        self._backoff = backoff
        if not isinstance(snapshot, bool):
            raise SpecError(f"snapshot must be true or false, not {shown(snapshot)}")
        self._copies_code = snapshot
        if hold_ports not in PORT_HOLD_MODES:
            hint = did_you_mean(shown(hold_ports).strip("'"), PORT_HOLD_MODES)
            modes = " or ".join(PORT_HOLD_MODES)
            raise SpecError(f"hold_ports must be {modes}, not {shown(hold_ports)}{hint}")
        self._hold_until_bound = hold_ports == "bound"

    @functools.cached_property
    def implementation(self) -> HostBackend:
        """The part of the cluster that launches, reads and controls experiments."""
        return self.backend_class(self._host_options())

    def _host_options(self) -> HostOptions:
        """Return the options of this class, as the backend needs them."""
        return HostOptions(
            backend=self.backend,
            root=self._root,
            children=self.children,
            configuration=self.configuration,
            gpus=self._gpus,
            backoff=self._backoff,
            hold_until_bound=self._hold_until_bound,
            copies_code=self._copies_code,
        )


def _state_root(value: object) -> Path:
    """Validate the option ``state_dir``, and return it as an absolute path."""
    from symphony.model.settings.validators import path

    root = path(value, "state_dir").absolute()
    if root.exists() and not root.is_dir():
        raise SpecError(f"state_dir must be a directory, not the file {root}")
    return root


def _device_names(value: object) -> list[str]:
    """Validate the option ``gpus``, and return the identifiers as strings."""
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            f"gpus must be a list of device identifiers, such as [0, 1], not {shown(value)}"
        )
    from symphony.model.settings.validators import strings

    return strings(value, "gpus")
