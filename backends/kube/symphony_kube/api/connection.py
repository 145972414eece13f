"""The client for the API server of a cluster, which is created when it is first used."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from symphony_kube.api.retries import Timeouts

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


class ApiConnection:
    """The settings for the client of the API server.

    ``kubeconfig`` and ``context`` select the cluster as in kubectl, ``connections`` is the maximum
    number of concurrent requests, and ``patience`` is the time in seconds for which the API server
    can be unreachable before a request fails.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | os.PathLike[str] | None,
        context: str | None,
        connections: int,
        patience: float,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._connections = connections
        self._patience = patience

    @functools.cached_property
    def api(self) -> Api:
        """The client."""
        from symphony_kube.api.client import Api

        return Api(
            kubeconfig=self._kubeconfig,
            context=self._context,
            connections=self._connections,
            timeouts=Timeouts(outage=self._patience),
        )
