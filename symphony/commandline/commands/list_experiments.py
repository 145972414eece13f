"""Listing the experiments of all backends, for ``ls``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK, error_message, exit_code
from symphony.commandline.output.terminal import print_note
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus

    List = Callable[[], list[ExperimentStatus]]


class Listing:
    """The statuses of all experiments, which can be read repeatedly.

    Unless ``only_selected`` is set, the listing contains the experiments of all backends that
    `find_backend` finds. ``exit_code`` is not 0 if an experiment could not be described, or if the
    ``selected`` backend has not responded. A backend that the user did not select and that has not
    responded is reported once, and then left out.
    """

    def __init__(self, prog: str, selected: Cluster, *, only_selected: bool) -> None:
        self.exit_code = OK
        self._prog = prog
        self._selected = selected
        self._only_selected = only_selected
        self._left_out: set[str] = set()

    def read(self) -> list[ExperimentStatus]:
        """Return the status of every experiment, sorted by name.

        An experiment or a backend that cannot be described is reported on standard error. Raises
        `SymphonyError` if the selected backend fails and is the only one.
        """
        if self._only_selected:
            return self._describe_all(self._selected)
        from symphony.commandline.commands import find_backend

        selected = self._selected
        slow = [
            cluster
            for cluster in find_backend.slow_clusters(selected.backend)
            if cluster.backend not in self._left_out
        ]
        quick = list(find_backend.other_clusters(selected.backend))
        (quick if find_backend.is_quick(selected.backend) else slow).append(selected)
        responses = [
            find_backend.Response(cluster.backend, self._describing(cluster)) for cluster in slow
        ]
        statuses: list[ExperimentStatus] = []
        for cluster in quick:
            statuses += self._read_one(cluster.backend, self._describing(cluster))
        for response in responses:
            statuses += self._read_one(response.backend, response.result)
        return sorted(statuses, key=lambda status: (status.name, status.backend))

    def _describing(self, cluster: Cluster) -> List:
        return lambda: self._describe_all(cluster)

    def _read_one(self, backend: str, read: List) -> list[ExperimentStatus]:
        """Return the statuses of one backend. If it fails, report this, and return no statuses."""
        try:
            return read()
        except SymphonyError as exc:
            if backend == self._selected.backend:
                self._report(exc)
            else:
                self._left_out.add(backend)
                print_note(f"{self._prog}: the experiments on {backend} are not listed: {exc}")
            return []

    def _describe_all(self, cluster: Cluster) -> list[ExperimentStatus]:
        """Return the status of every experiment of a cluster.

        An experiment that cannot be described is reported. The statuses of the other experiments
        are still returned.
        """
        statuses = []
        for name in cluster.list_experiments():
            try:
                statuses.append(cluster.describe_experiment(name))
            except NotFound:
                # The experiment was deleted after the names were listed.
                continue
            except SymphonyError as exc:
                self._report(exc)
        return statuses

    def _report(self, exc: SymphonyError) -> None:
        print_note(f"{self._prog}: error: {error_message(exc)}")
        self.exit_code = self.exit_code or exit_code(exc)
