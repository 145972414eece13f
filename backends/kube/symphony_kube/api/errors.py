"""What an API server's refusal means, in one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import BackendError, Unreachable


class ApiError(BackendError):
    """The API server answered with an error.

    ``status`` is that of HTTP, ``reason`` Kubernetes' word for it (``AlreadyExists``, ``Forbidden``), ``detail``
    the server's own message. ``retry_after`` is in seconds, where the server said so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        detail: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.detail = detail or message
        self.retry_after = retry_after


class UntrustedCertificate(Unreachable):
    """The server shows a certificate that is not trusted; to ask again is no use."""


def api_error(
    status: int, answer: Mapping[str, Any], text: str, retry_after: float | None
) -> ApiError:
    """The error for an answer; ``answer`` is the Status object that came with it, ``text`` what came instead."""
    detail = one_line(str(answer.get("message") or text or "no reason given"))
    reason = str(answer.get("reason") or "")
    message = f"{detail} (HTTP {status}{f', {reason}' if reason else ''})"
    if status == 401:
        message = detail = (
            f"the API server does not accept these credentials: {detail} (HTTP 401); the token may have expired: "
            "log in again, or choose another context or kubeconfig"
        )
    return ApiError(message, status=status, reason=reason, detail=detail, retry_after=retry_after)


def one_line(text: str, *, limit: int = 600) -> str:
    """A foreign message on one line, not longer than a reader can bear."""
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
