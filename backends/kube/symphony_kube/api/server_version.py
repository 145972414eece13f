"""The version of the API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def minor_version(api: Api) -> int:
    """Return the minor version of the server, such as 33 for Kubernetes 1.33.

    It is 0 if the server does not report a number. Sends a request.
    """
    version = api.call("GET", "/version")
    digits = re.match("[0-9]+", version["minor"])
    return int(digits[0]) if digits else 0
