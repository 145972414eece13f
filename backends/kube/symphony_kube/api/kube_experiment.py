"""An experiment in a cluster: all that is needed to find its objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope


class KubeExperiment(NamedTuple):
    """An experiment, which need not exist.

    ``api`` is the client of the API server, and ``scope`` has the names and labels of the objects.
    """

    api: Api
    scope: Scope

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.scope.experiment

    @property
    def namespace(self) -> str:
        """The namespace of its objects."""
        return self.scope.namespace

    @property
    def selector(self) -> str:
        """The label selector of its objects; see `Scope.selector`."""
        return self.scope.selector

    def of_run(self, run: str) -> KubeExperiment:
        """Return the experiment with only the objects of one run."""
        return self._replace(scope=replace(self.scope, run=run))
