"""The last lines of a log, which show why a process has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.commandline.output.describe import LAST_LINES
from symphony.commandline.output.terminal import print_note
from symphony.errors import SymphonyError
from symphony.support.escapes import remove_controls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from symphony.cluster import Cluster
    from symphony.status import ProcessStatus
    from symphony.support.hidden_values import HiddenValues

# The number of processes whose last lines are printed. Other processes often fail for the same
# reason, or because these have failed.
_SHOWN_PROCESSES = 3


def last_lines(cluster: Cluster, experiment: str, process: str, hidden: HiddenValues) -> list[str]:
    """Return the last lines of a log. Raises SymphonyError if the log cannot be read."""
    log = cluster.get_log(experiment, process, tail=LAST_LINES)
    return remove_controls(hidden.in_text(log), keep_colours=False).splitlines()


def print_last_lines(cluster: Cluster, experiment: str, processes: Iterable[ProcessStatus]) -> None:
    """Print the last lines of the logs of the first processes that were started."""
    started = [process for process in processes if process.started is not None]
    if not started:
        return
    hidden = cluster.hidden_values(experiment)
    for process in started[:_SHOWN_PROCESSES]:
        try:
            lines = last_lines(cluster, experiment, process.name, hidden)
        except SymphonyError:
            # The message about the failure is useful even if the log is not available.
            continue
        if lines:
            print_note(
                "\n".join([f"last lines (of {process.path}):", *(f"  {each}" for each in lines)])
            )
