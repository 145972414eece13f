"""Notice that an experiment does not exist, or that it was deleted while it is observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.errors import NotFound
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import NAMESPACES
from symphony_kube.record.stored_record import read_stored_record
from symphony_kube.status.experiments import status_without_objects

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.state.observe import Observation
    from symphony_kube.watch.experiment_informer import ExperimentInformer


class ExistenceCheck:
    """Checks for one reader whether the experiment exists."""

    def __init__(self, experiment: KubeExperiment) -> None:
        self._experiment = experiment
        self._is_known = False

    def check_known(self, informer: ExperimentInformer) -> None:
        """Raise `NotFound` if the experiment has no objects at all.

        An experiment that was found once is not looked for again.
        """
        if self._is_known:
            return
        with informer.changed:
            is_known = informer.state.is_known
        if not is_known:
            status_without_objects(self._experiment)
        self._is_known = True

    def check_observation(self, observation: Observation) -> None:
        """Raise `NotFound` if an experiment that was observed earlier has been deleted."""
        if observation.empty and not self._has_other_objects():
            raise NotFound(f"experiment {self._experiment.name!r} was deleted")

    def _has_other_objects(self) -> bool:
        """Return whether the experiment's namespace, or its description in a shared namespace,
        exists and is not being deleted.

        It still exists if only the Pods were deleted, for example by a user or with their node.
        """
        if self._experiment.scope.shared:
            return read_stored_record(self._experiment) is not None
        try:
            namespace = self._experiment.api.find(f"{NAMESPACES}/{self._experiment.namespace}")
        except ApiError as exc:
            if exc.status != 403:
                raise
            return False
        return namespace is not None and "deletionTimestamp" not in namespace["metadata"]
