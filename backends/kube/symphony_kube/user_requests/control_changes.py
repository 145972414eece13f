"""The changes of the recorded requests for a unit that commands make. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from symphony_kube.lifecycle import attempts
from symphony_kube.state.control_state import Control


def with_stop(control: Control, now: float, kill_at: float) -> Control:
    """Return requests to stop a unit and not to start it again.

    It is killed at the time ``kill_at``. If this is infinity, its own grace period applies.
    """
    requested = attempts.stop_requested(control, now)
    kill = _earlier_kill(control.kill, kill_at)
    return replace(requested, kill=kill, command="", others="")


def without_start(control: Control, now: float, *, has_ended: bool) -> Control:
    """Return requests for a unit that is to be stopped, without its start.

    A unit that runs and is not being stopped continues until its turn comes. Otherwise the stop is
    recorded, too, so that the restart policy does not start the unit.
    """
    if control.stop or has_ended:
        return with_stop(control, now, math.inf)
    return replace(control, start=0.0, reason="", code="", in_row=0, command="", others="")


def with_start(control: Control, now: float) -> Control:
    """Return requests to start the next attempt of a unit."""
    return replace(control, start=now, reason="", code="", in_row=0, command="", others="")


def with_restart(control: Control, now: float, kill_at: float) -> Control:
    """Return requests to stop a unit and to start it again."""
    return with_start(with_stop(control, now, kill_at), now)


def with_later_stop(control: Control, now: float, kill_at: float) -> Control:
    """Return the requests for a unit whose start was requested before its stop.

    A user who has stopped the unit in the meantime has cancelled its start.
    """
    if not control.start:
        return control
    return replace(control, stop=control.stop or now, kill=_earlier_kill(control.kill, kill_at))


def _earlier_kill(recorded: float, kill_at: float) -> float:
    """Return the earlier one of two times, of which the first can be 0.0 and the second infinity.

    Both mean that there is no such time.
    """
    earlier = min(recorded or math.inf, kill_at)
    return 0.0 if earlier == math.inf else earlier
