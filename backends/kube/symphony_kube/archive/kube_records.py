"""The records of experiments in a Kubernetes cluster: in its objects and on this machine."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from symphony.cluster.backend.records import Records

if TYPE_CHECKING:
    from symphony.archive.archived_usage import RecordedUsage
    from symphony.code.snapshot import CodeArchive
    from symphony.status import ExperimentStatus
    from symphony_kube.api.connection import ApiConnection
    from symphony_kube.api.labels import Scopes


class KubeRecords(Records):
    """The records of the experiments whose objects ``scopes`` names.

    ``observe`` returns the status of an experiment.
    """

    def __init__(
        self,
        connection: ApiConnection,
        scopes: Scopes,
        observe: Callable[[str], ExperimentStatus],
    ) -> None:
        super().__init__(observe)
        self._connection = connection
        self._scopes = scopes

    def usage(self, experiment: str) -> RecordedUsage:
        """Return the resource use that the supervisor has recorded."""
        from symphony_kube.archive import recording

        if not self._scopes.run:
            self._observe(experiment)
        return recording.recorded_usage(self._connection.api, self._scopes.of(experiment))

    def code(self, experiment: str) -> Mapping[str, CodeArchive]:
        """Return the code in the record on this machine."""
        from symphony_kube.archive import recording

        return recording.recorded_code(self._connection.api, self._scopes.of(experiment))

    def secret_contents(self, experiment: str) -> list[bytes]:
        """Return the contents of the Secret with the secrets, if the user may read it."""
        from symphony_kube.api.errors import ApiError
        from symphony_kube.api.labels import SECRETS
        from symphony_kube.api.resources import collection_path

        scope = self._scopes.of(experiment)
        name = scope.object_name(SECRETS, "Secret")
        try:
            secret = self._connection.api.find(
                f"{collection_path('Secret', scope.namespace)}/{name}"
            )
        except ApiError:
            # Many users may read Pods and their logs, but no Secrets.
            secret = None
        data = {} if secret is None else secret.get("data") or {}
        return [base64.b64decode(value) for value in data.values()]

    def removed_processes(self, experiment: str) -> list[str]:
        """Return the removed processes whose Pods still exist."""
        from symphony_kube.status import find_pod

        return find_pod.removed_processes(self._connection.api, self._scopes.of(experiment))
