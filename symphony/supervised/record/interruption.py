"""Experiments with the option ``resume``, which are started again after a reboot of their machine.

When a machine shuts down, the supervisor receives SIGTERM. It stops the processes, and exits
without an end of the experiment; see `interruption`. After a crash of the machine, the experiment
has no end either.
"""

from __future__ import annotations

from symphony.errors import SymphonyError
from symphony.plan.policies import Ending, Policies
from symphony.plan.restart_policy import Restart
from symphony.status import ReasonCode
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import is_finished


def after_reboot() -> Ending:
    """Return why the processes of an experiment have ended, whose machine was restarted."""
    return _restart("the machine was restarted")


def interruption(run: RunDirectory) -> Ending | None:
    """Return why the system stops an experiment, or None if a user stops it.

    The system stops an experiment for good that does not have the option ``resume``.
    """
    if run.is_stop_requested() or not _is_marked(run):
        return None
    return _restart("the system has stopped it")


def _restart(cause: str) -> Ending:
    return Ending(
        action="restart",
        reason=f"the experiment restarts: {cause}",
        reason_code=ReasonCode.EXPERIMENT_RESTARTS,
        cause=cause,
        restart=Restart(delay=0.0, in_row=0),
    )


def _is_marked(run: RunDirectory) -> bool:
    try:
        return Policies.from_dict(run.load_manifest().get("policies", {})).resume
    except (SymphonyError, OSError, ValueError, TypeError):
        # Other commands report that the run is damaged.
        return False


def is_resumable(run: RunDirectory) -> bool:
    """Return whether an experiment with the option ``resume`` was interrupted by a reboot.

    The run of another host, or of another container, is not.
    """
    if not _is_marked(run) or is_finished(run.events):
        return False
    return run.other_host() is None and not run.is_of_this_boot()
