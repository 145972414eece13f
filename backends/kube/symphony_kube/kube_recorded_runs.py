"""The part of the kube backend that finds and reads the recorded runs of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.cluster.backend import Inspection, RecordedRuns

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony_kube.kube_inspection import KubeInspection


class KubeRecordedRuns(RecordedRuns):
    """The runs that were launched on this machine."""

    def __init__(self, backend: KubeInspection) -> None:
        super().__init__(backend)
        self._kube = backend

    def find(self, experiment: str) -> Run | None:
        """Return the newest run of an experiment that was launched on this machine."""
        from symphony_kube.archive.recording import find_record

        return find_record(self._kube.target(experiment))

    def at_run(self, run: Run) -> Inspection:
        """Return a backend that reads the record of a run, or the objects of an active run."""
        from symphony.cluster.recorded_run import RecordBackend
        from symphony_kube.archive.recording import run_id_of

        if run.is_archived:
            return RecordBackend(run)
        options = self._kube.options
        scopes = options.scopes._replace(run=run_id_of(run))
        return type(self._kube)(options._replace(run=run, scopes=scopes))
