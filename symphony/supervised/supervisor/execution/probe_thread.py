"""Running a probe, which blocks, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probes import Probe, ProbeNotRun

# If a probe returns even later than this after its timeout, it is not awaited any more. For
# example, a command in an uninterruptible system call cannot be killed.
RETURN_MARGIN_SECONDS = 1.0
NOT_FINISHED = "the last test has not finished"


class Outcome(NamedTuple):
    """The outcome of a probe.

    ``result`` is that of the probe. If ``was_run`` is false, the process was not tested, and the
    result is why.
    """

    result: str
    was_run: bool = True


def run_probe(
    loop: EventLoop,
    probe: Probe,
    timeout: float,
    on_outcome: Callable[[Outcome], None],
    *,
    with_hint: bool,
) -> None:
    """Run a probe, and call ``on_outcome`` in the event loop.

    ``timeout`` is the time in seconds for which the probe may block. With ``with_hint``, the result
    contains a possible cause.
    """

    def run() -> None:
        outcome = _outcome(probe, timeout, with_hint=with_hint)
        loop.post(lambda: on_outcome(outcome))

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except Exception as exc:
        # For example, the user's limit on processes and threads has been reached.
        on_outcome(Outcome(f"the probe cannot be run: {exc}", was_run=False))


def _outcome(probe: Probe, timeout: float, *, with_hint: bool) -> Outcome:
    try:
        result = probe.test(timeout)
        hint = probe.hint() if result and with_hint else ""
    except ProbeNotRun as exc:
        return Outcome(str(exc), was_run=False)
    except Exception as exc:
        return Outcome(f"the probe failed with {type(exc).__name__}: {exc}", was_run=False)
    return Outcome(f"{result} ({hint})" if hint else result)
