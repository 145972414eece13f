"""Errors from the API server, each with a one-line message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import BackendError, Unreachable

# The message of the API server about a node at which it cannot ask for logs or run commands. Such a
# node has no kubelet, or has not been registered completely.
_NO_ADDRESS = "no preferred addresses found"


class ApiError(BackendError):
    """Raised if the API server answers with an error.

    ``status`` is the HTTP status code. ``reason`` is the one-word reason that Kubernetes gives,
    such as ``AlreadyExists`` or ``Forbidden``. ``detail`` is the message from the server.
    ``retry_after`` is the value of the Retry-After header in seconds, or None.
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

    @property
    def node_has_no_address(self) -> bool:
        """True if the server cannot reach a node because the node has no address. Retrying does
        not help.
        """
        return self.detail.startswith(_NO_ADDRESS)


class UntrustedCertificate(Unreachable):
    """Raised if the server's certificate is not trusted. Retrying does not help."""


def api_error(
    status: int, answer: Mapping[str, Any], text: str, retry_after: float | None
) -> ApiError:
    """Convert an error response to an `ApiError`.

    ``answer`` is the Status object in the response, or empty if the response contains none. In that
    case, the message is ``text``, the response body.
    """
    detail = one_line(str(answer.get("message") or text or "no reason given"))
    reason = str(answer.get("reason") or "")
    code = f"HTTP {status}, {reason}" if reason else f"HTTP {status}"
    message = f"{detail} ({code})"
    if status == 401:
        detail = (
            f"the API server does not accept these credentials: {detail} (HTTP 401); the token may "
            "have expired: log in again, or choose another context or kubeconfig"
        )
        message = detail
    return ApiError(message, status=status, reason=reason, detail=detail, retry_after=retry_after)


def one_line(text: str, *, limit: int = 600) -> str:
    """Return ``text`` on one line, truncated to ``limit`` characters."""
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
