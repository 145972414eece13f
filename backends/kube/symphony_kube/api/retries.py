"""Determine when a failed call is repeated, and when it is given up. Pure.

* If the server asks the client to come back later (429 or 503 with Retry-After), the call is
  repeated for up to two minutes, regardless of the kind of call.
* After other errors from the server (429, 5xx), the call is repeated a few times, because these
  errors pass within seconds if a server restarts behind its load balancer. The same applies to
  timeouts and lost connections if the server has answered an earlier call.
* If the server has never answered, the call fails within two seconds or at the first timeout,
  because the address is probably wrong or the server is down.
* If the certificate of the server is not trusted, the call is not repeated.

All calls can be repeated safely: reads, deletions by uid, and merge patches. A creation can also be
repeated, because "already exists" is accepted if an earlier try of the same launch created the
object (see `symphony_kube.lifecycle.create`).
"""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import BackendError, Unreachable
from symphony_kube.api.errors import ApiError, UntrustedCertificate

TOO_MANY_REQUESTS = 429
SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long calls can take and how long they are repeated. All values are in seconds.

    * ``connect``: the maximum time to connect in each try.
    * ``response``: the maximum time until the server answers in each try.
    * ``first_response``: the same maximum for a server that has never answered.
    * ``pauses``: the pauses between tries.
    * ``unreached``: how long a call is repeated if the server has never answered.
    * ``outage``: how long a call is repeated if the server has answered an earlier call.
    * ``retry_after_total``: how long a call is repeated if the server sends Retry-After.
    * ``retry_after_longest``: the longest pause that Retry-After can cause.
    """

    connect: float = 4.0
    response: float = 15.0
    first_response: float = 8.0
    pauses: tuple[float, ...] = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
    unreached: float = 2.0
    outage: float = 45.0
    retry_after_total: float = 120.0
    retry_after_longest: float = 30.0


def pause(
    exc: BackendError, timeouts: Timeouts, *, failures: int, elapsed: float, reached: bool
) -> float | None:
    """Return the pause before the next try in seconds, or None to give up.

    ``failures`` is the number of earlier failures of this call. ``elapsed`` is the time since the
    first try in seconds. ``reached`` is True if the server has ever answered.
    """
    next_pause = timeouts.pauses[failures] if failures < len(timeouts.pauses) else None
    if isinstance(exc, ApiError):
        if exc.status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE) and exc.retry_after is not None:
            wanted = max(exc.retry_after, timeouts.pauses[0])
            wanted = min(wanted, timeouts.retry_after_longest)
            return wanted if elapsed + wanted <= timeouts.retry_after_total else None
        is_temporary = exc.status == TOO_MANY_REQUESTS or exc.status >= 500
        return next_pause if is_temporary else None
    if not isinstance(exc, Unreachable) or isinstance(exc, UntrustedCertificate):
        return None
    if next_pause is None:
        return None
    limit = timeouts.outage if reached else timeouts.unreached
    return next_pause if elapsed + next_pause <= limit else None
