"""The options of a cluster of supervised experiments, as its backend needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.config import SymphonyConfig
    from symphony.plan.restart_policy import Backoff


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The options of a `HostCluster`, after they have been checked.

    ``backend`` is the name of the backend, ``root`` is the directory with the run directories, and
    ``children`` is the ``"module:Class"`` that starts processes. If ``hold_until_bound`` is true, a
    port is held until the experiment finishes. If ``copies_code`` is true, processes with `code`
    run from a copy. ``gpus`` and ``backoff`` are None for the defaults. If ``run_path`` is given,
    this record of a run is read instead of the experiments.
    """

    backend: str
    root: Path
    children: str
    configuration: SymphonyConfig
    gpus: Sequence[str] | None = None
    backoff: Backoff | None = None
    hold_until_bound: bool = False
    copies_code: bool = False
    run_path: Path | None = None
