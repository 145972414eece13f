"""Determine when to retry a failed call, and when to give up.

* If the server asks the client to try again later (429 or 503 with Retry-After), any call is
  retried for up to two minutes.
* After other errors from the server (429, 5xx), the call is retried a few times, because such
  errors usually clear within seconds when a server restarts behind its load balancer. The error
  about a node that has no address is an exception.
* If the server has answered an earlier call and can no longer be reached, the call is retried until
  the outage has lasted too long. All calls of a client share the outage, so that a program with
  many calls does not wait for each of them.
* If the server has never answered, the call fails within two seconds or at the first timeout. In
  this case, the address is probably wrong or the server is down. After a timeout, the server is
  asked for its version. If it answers this small request, it is only slow.
* If the server's certificate is not trusted, the call is not retried.

All calls can be retried safely. Reads, deletions by UID and merge patches can be repeated without
further effect. A retried creation is safe because "already exists" is accepted if an earlier try of
the same launch created the object (see `symphony_kube.lifecycle.create`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from symphony.errors import BackendError, Unreachable
from symphony_kube.api.errors import ApiError, UntrustedCertificate

TOO_MANY_REQUESTS = 429
SERVICE_UNAVAILABLE = 503

# How long the API server can be unreachable, unless the user has set the option ``patience``. The
# API server of a managed cluster with one control plane restarts within this time.
PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long calls can take, and how long they are retried. All values are in seconds.

    * ``connect``: the maximum time to connect, for each try.
    * ``response``: the maximum time until the server answers, for each try.
    * ``first_response``: the upper limit on ``response`` if the server has never answered.
    * ``pauses``: the successive pauses between tries.
    * ``unreached``: how long a call is retried if the server has never answered.
    * ``outage``: how long a server that has answered an earlier call can be unreachable before
      calls and watches fail.
    * ``retry_after_total``: how long a call is retried if the server sends Retry-After.
    * ``retry_after_longest``: the longest pause that Retry-After can cause.
    """

    connect: float = 4.0
    response: float = 15.0
    first_response: float = 8.0
    pauses: tuple[float, ...] = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
    unreached: float = 2.0
    outage: float = PATIENCE_SECONDS
    retry_after_total: float = 120.0
    retry_after_longest: float = 30.0


def pause(
    exc: BackendError,
    timeouts: Timeouts,
    *,
    failures: int,
    elapsed: float,
    outage: float | None,
) -> float | None:
    """Return how many seconds to pause before the next try, or None to give up.

    ``failures`` is the number of times that this call failed before ``exc``. ``elapsed`` is the
    number of seconds since the first try. ``outage`` is the number of seconds for which the server
    has been unreachable, or None if it has never answered.
    """
    next_pause = timeouts.pauses[failures] if failures < len(timeouts.pauses) else None
    if isinstance(exc, ApiError):
        if exc.status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE) and exc.retry_after is not None:
            wanted = max(exc.retry_after, timeouts.pauses[0])
            wanted = min(wanted, timeouts.retry_after_longest)
            return wanted if elapsed + wanted <= timeouts.retry_after_total else None
        is_temporary = exc.status == TOO_MANY_REQUESTS or exc.status >= 500
        return next_pause if is_temporary and not exc.node_has_no_address else None
    if not isinstance(exc, Unreachable) or isinstance(exc, UntrustedCertificate):
        return None
    if outage is None:
        may_wait = next_pause is not None and elapsed + next_pause <= timeouts.unreached
        return next_pause if may_wait else None
    if not timeouts.pauses:
        return None
    if next_pause is None:
        next_pause = timeouts.pauses[-1]
    # Other calls can succeed while this one receives no answer.
    return next_pause if max(outage, elapsed) + next_pause <= timeouts.outage else None


class Outage:
    """The time for which the server has been unreachable. Several threads can share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: float | None = None
        self._latest = 0.0

    def end(self) -> None:
        """Note that the server has answered."""
        self._began = None

    def note_failure(self, timeouts: Timeouts) -> float:
        """Note that a call has received no answer, and return how long the outage has lasted."""
        now = time.monotonic()
        with self._lock:
            # Nothing is known about the time in which there were no calls.
            if self._began is None or now - self._latest > timeouts.outage:
                self._began = now
            self._latest = now
            return now - self._began
