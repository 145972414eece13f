"""What must hold in every history, checked against the simulated machines and not the record.

The checks know the rules of the product in a second, simpler form: they say what may happen, and
the decisions say what does happen. Nothing here imports the modules that decide.
"""

from __future__ import annotations

ONCE = "no process runs twice at the same time"
NOTHING_LEFT = "nothing runs after the end"
ORDER = "no process starts before what it waits for"
TRUTH = "states and exit codes are true"
CAUSE = "every event and action has a cause"
SECOND_UP = "a second up finds nothing to do"
RECORD = "the record that is read back equals the state"
ENDS = "the history ends"
IDLE = "nothing is decided without new facts"
GRACE = "each grace period is kept"
RESTARTS = "restarts follow the policy"
STOPPED = "only a user starts what a user has stopped"
STOP_ORDER = "processes stop in the reverse of the start order"
PROGRESS = "what can happen does happen"
ANSWERED = "each request is answered when it is done"
GANG = "the ranks of a gang run together"
HEALTH = "an unhealthy process does not keep running, and has failed"
NO_ERROR = "no decision raises an error"

PROMISES = (
    ONCE,
    NOTHING_LEFT,
    ORDER,
    TRUTH,
    CAUSE,
    SECOND_UP,
    RECORD,
    ENDS,
    IDLE,
    GRACE,
    RESTARTS,
    STOPPED,
    STOP_ORDER,
    PROGRESS,
    ANSWERED,
    GANG,
    HEALTH,
    NO_ERROR,
)


class Broken(Exception):
    """A promise was broken. ``promise`` is one of `PROMISES`."""

    def __init__(self, promise: str, message: str) -> None:
        super().__init__(message)
        self.promise = promise
