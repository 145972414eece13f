"""Starting the experiments again that a reboot has interrupted."""

from __future__ import annotations

from collections.abc import Iterable

from symphony.errors import SymphonyError
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.interruption import is_resumable
from symphony.supervised.user_requests.replacement import replace_supervisor


def resume_runs(
    runs: Iterable[RunDirectory], children: str, *, dry_run: bool = False
) -> dict[str, str]:
    """Start new supervisors for the runs that a reboot has interrupted.

    All processes start again, in start order, unless the experiment was being stopped. ``children``
    is the name of the class that starts processes; see `HostCluster`. With ``dry_run``, nothing is
    started. The result maps the names to why the experiment could not be started, or ``""``.
    """
    resumed = {}
    for run in runs:
        if not is_resumable(run):
            continue
        try:
            if dry_run or replace_supervisor(run, children):
                resumed[run.name] = ""
        except (SymphonyError, OSError) as exc:
            resumed[run.name] = str(exc)
    return resumed
