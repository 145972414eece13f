"""When a call that failed is tried again, and when one gives up. Pure.

* A server that says when to come back (429, 503 with Retry-After) is obeyed, whatever was asked, for two minutes.
* Other trouble of the server's own (429, 5xx), and silence or a broken connection of a server that was reached
  before, are over within seconds where a server restarts behind its load balancer.
* A server that never answered is not there: that is told within two seconds, or after the first silence.
* One that shows a certificate that is not trusted is not asked again.

All calls can be repeated: reading; deleting by uid; merge patches; and creating, since whoever creates takes
"already exists" for an answer to an earlier try (see `symphony_kube.lifecycle.create`).
"""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import BackendError, Unreachable
from symphony_kube.api.errors import ApiError, UntrustedCertificate

TOO_MANY, UNAVAILABLE = 429, 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long things may take, in seconds.

    ``connect`` and ``answer`` are for one try: to connect, and to answer. ``pauses`` are between tries.
    ``reach`` is how long a server that never answered is tried, ``silence`` one that did, ``asked`` one that says
    when to come back, at most ``longest`` at a time. A server that never answered gets ``first`` for its first answer.
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
    """How long to wait before the next try, or None to give up.

    ``failures`` came before this one, ``elapsed`` seconds after the first try. ``reached`` is whether the server
    ever answered.
    """
    usual = timeouts.pauses[failures] if failures < len(timeouts.pauses) else None
    if isinstance(exc, ApiError):
        if exc.status in (TOO_MANY, UNAVAILABLE) and exc.retry_after is not None:
            wanted = min(max(exc.retry_after, timeouts.pauses[0]), timeouts.retry_after_longest)
            return wanted if elapsed + wanted <= timeouts.retry_after_total else None
        return usual if exc.status == TOO_MANY or exc.status >= 500 else None
    if not isinstance(exc, Unreachable) or isinstance(exc, UntrustedCertificate) or usual is None:
        return None
    limit = timeouts.outage if reached else timeouts.unreached
    return usual if elapsed + usual <= limit else None
