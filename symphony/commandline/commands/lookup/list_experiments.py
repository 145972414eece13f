"""Listing the experiments of all backends, for ``ls``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK, error_message, exit_code
from symphony.commandline.output.terminal import print_note
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.cluster import Cluster, WatchedStatuses
    from symphony.commandline.commands.lookup.find_backend import Response
    from symphony.status import ExperimentStatus

    Names = Response[list[str]]


class Listing:
    """The statuses of all experiments, which can be read repeatedly.

    Unless ``only_selected`` is set, the listing contains the experiments of all backends that
    `find_backend` finds. ``exit_code`` is not 0 if an experiment could not be described, or if the
    ``selected`` backend has not responded. A backend that the user did not select and that has not
    responded is reported once, and then left out. Reports are passed to ``report``, which prints
    them on standard error by default.
    """

    def __init__(
        self,
        prog: str,
        selected: Cluster,
        *,
        only_selected: bool,
        report: Callable[[str], None] = print_note,
    ) -> None:
        self.exit_code = OK
        self._prog = prog
        self._report = report
        self._selected = selected
        self._only_selected = only_selected
        self._slow: list[Cluster] | None = None
        self._left_out: set[str] = set()
        # The open watches by backend, and None unless the experiments are watched.
        self._watches: dict[str, Callable[[], WatchedStatuses]] | None = None
        self._opened = contextlib.ExitStack()
        self._outages: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], WatchedStatuses]]:
        """Return a context with a function that does the same as `read`, but watches each backend
        that can report changes instead of listing its experiments each time.
        """
        from symphony.cluster import WatchedStatuses

        def read() -> WatchedStatuses:
            self._outages = []
            return WatchedStatuses(self.read(), "; ".join(filter(None, self._outages)))

        self._watches = {}
        with self._opened:
            yield read

    def read(self) -> list[ExperimentStatus]:
        """Return the status of every experiment, sorted by name.

        An experiment or a backend that cannot be described is reported. Raises
        `SymphonyError` if the selected backend fails and is the only one.
        """
        if self._only_selected:
            return self._describe(self._selected, None)
        from symphony.commandline.commands.lookup import find_backend

        selected = self._selected
        quick = list(find_backend.other_clusters(selected))
        if self._slow is None:
            self._slow = list(find_backend.slow_clusters(selected))
        slow = [cluster for cluster in self._slow if cluster.backend not in self._left_out]
        (quick if find_backend.is_quick(selected.backend) else slow).append(selected)
        responses: dict[str, Names] = {}
        for cluster in slow:
            if cluster.backend not in (self._watches or {}):
                response = find_backend.Response(cluster.backend, cluster.list_experiments)
                responses[cluster.backend] = response
        statuses: list[ExperimentStatus] = []
        for cluster in (*quick, *slow):
            statuses += self._read_one(cluster, responses.get(cluster.backend))
        return sorted(statuses, key=lambda status: (status.name, status.backend))

    def read_all(self) -> list[ExperimentStatus]:
        """Return the same as `read`. If there are no experiments, report where they would be."""
        statuses = self.read()
        location = "" if statuses or self.exit_code != OK else self._selected.location
        if location:
            self._report(f"{self._prog}: there are no experiments in {location}")
        return statuses

    def _read_one(self, cluster: Cluster, response: Names | None) -> list[ExperimentStatus]:
        """Return the statuses of one backend. If it fails, report this, and return no statuses."""
        try:
            return self._describe(cluster, response)
        except SymphonyError as exc:
            if cluster is self._selected:
                self._report_error(exc)
            else:
                self._left_out.add(cluster.backend)
                self._report(
                    f"{self._prog}: the experiments on {cluster.backend} are not listed: {exc}"
                )
            return []

    def _describe(self, cluster: Cluster, response: Names | None) -> list[ExperimentStatus]:
        """Return the statuses of the experiments of one backend.

        ``response`` contains the names of the experiments of a backend that is slow to respond. An
        experiment that cannot be described is reported. The statuses of the other experiments are
        still returned.
        """
        names = None if response is None else response.result()
        if self._watches is None:
            names = cluster.list_experiments() if names is None else names
            return cluster.describe_experiments(names, on_error=self._report_error)
        if cluster.backend not in self._watches:
            watch = cluster.watch_experiments(on_error=self._report_error)
            self._watches[cluster.backend] = self._opened.enter_context(watch)
        try:
            watched = self._watches[cluster.backend]()
        except SymphonyError:
            # The next call opens a new watch.
            del self._watches[cluster.backend]
            raise
        self._outages.append(watched.outage)
        return watched.statuses

    def _report_error(self, exc: SymphonyError) -> None:
        self._report(f"{self._prog}: error: {error_message(exc)}")
        self.exit_code = self.exit_code or exit_code(exc)
