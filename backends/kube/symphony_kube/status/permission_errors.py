"""Errors for calls that the API server refuses. Pure.

If the user lacks a permission, the error message names the permission or advises on a fix.
"""

from __future__ import annotations

from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope


def refused(exc: ApiError, action: str, advice: str) -> ApiError:
    """Return the error for a refused action, with advice for the user."""
    return _with_message(exc, f"cannot {action}: {exc.detail}; {advice}")


def missing_right(exc: ApiError, action: str, right: str, scope: Scope) -> ApiError:
    """Return the error for a failed action.

    If the status is 403, the error names the missing permission.
    """
    message = f"cannot {action}: {exc.detail} (HTTP {exc.status})"
    if exc.status == 403:
        message += f"; it requires the right to {right} in namespace {scope.namespace!r}"
    return _with_message(exc, message)


def cannot_list_pods(exc: ApiError, scope: Scope) -> ApiError:
    """Return the error for a user who has no permission to list an experiment's Pods."""
    advice = "ask for the right to list and watch Pods there"
    if not scope.shared:
        advice += ", or choose a namespace that you may use with namespace="
    action = f"read experiment {scope.experiment!r} in namespace {scope.namespace!r}"
    return refused(exc, action, advice)


def _with_message(exc: ApiError, message: str) -> ApiError:
    return ApiError(message, status=exc.status, reason=exc.reason, detail=exc.detail)
