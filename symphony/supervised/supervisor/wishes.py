"""The wish of a supervised run: what its processes and policies should be."""

from __future__ import annotations

from symphony.plan.policies import Policies
from symphony.plan.restart_policy import Backoff
from symphony.plan.state import Event
from symphony.plan.wish import ProcessWish, Wish
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable


class Wishes:
    """The present wish of one run, and how it changes.

    ``reserves_gpus`` is true if GPUs are leased before each start that a request has caused.
    """

    def __init__(
        self,
        processes: ProcessTable,
        policies: Policies,
        backoff: Backoff,
        *,
        change: Event | None,
        reserves_gpus: bool,
    ) -> None:
        self._processes = processes
        self._policies = policies
        self._backoff = backoff
        self._change = change
        self._reserves_gpus = reserves_gpus
        self.present = self._make()

    @property
    def policies(self) -> Policies:
        """The policies of the experiment."""
        return self._policies

    def change(self, policies: Policies, event: Event) -> None:
        """Use other policies, and the changed descriptions of the processes."""
        self._policies, self._change = policies, event
        self.renew()

    def renew(self) -> None:
        """Use the present descriptions of the processes."""
        self.present = self._make()

    def _make(self) -> Wish:
        return Wish(
            [self._of(process.spec) for process in self._processes.present.values()],
            self._policies,
            backoff=self._backoff,
            previous=[self._of(spec) for spec in self._processes.old_specs.values()],
            change=self._change,
        )

    def _of(self, spec: ProcessSpec) -> ProcessWish:
        return process_wish(spec, reserves=self._reserves_gpus and spec.gpus > 0)


def process_wish(spec: ProcessSpec, *, reserves: bool = False) -> ProcessWish:
    """Return what is wanted of a process with the description ``spec``."""
    return ProcessWish(
        name=spec.name,
        path=spec.path,
        restart=spec.restart,
        starts_after=spec.starts_after,
        has_test=spec.ready is not None,
        ready_timeout=spec.ready_timeout,
        max_failed_tests=None if spec.healthy is None else spec.healthy["failures"],
        grace=spec.grace,
        deadline=spec.deadline,
        gang=spec.unit,
        ports=spec.releases,
        reserves=reserves,
    )
