"""The interface of a backend: the methods that `Cluster` calls and that platforms implement.

All else that a user can do with a cluster is written once, in `Cluster`, with these methods. It
checks the arguments, finds the processes that a user has named, and raises the errors that all
backends share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from symphony.cluster.backend.inspection import (
    Inspection,
    Selection,
    WaitGoal,
    Watch,
    wait_for_poll,
)
from symphony.cluster.backend.process_access import (
    Access,
    ForwardRequest,
    NamedProcess,
    Place,
)
from symphony.cluster.backend.recorded_runs import RecordedRuns
from symphony.cluster.matching import check_not_running, unsupported
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.cluster.results import Manifest
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.plan import Plan
    from symphony.plan.resolution.addresses import AddressScheme
    from symphony.plan.resolve import Defaults
    from symphony.status import ExperimentStatus, ProcessStatus

# The class of the manifests of a backend.
ManifestT = TypeVar("ManifestT", bound="Manifest")

_NO_CHANGES = "cannot change {!r} while it is running; launch it again with force"


@dataclass(frozen=True, kw_only=True)
class ProcessRequest:
    """A request about processes of a running experiment.

    ``kind`` is ``stop``, ``start``, ``restart`` or ``signal``, or ``end``, which stops the whole
    experiment for good and keeps its logs and its status. ``processes`` is what the user has
    written; None stands for all processes. ``grace`` is the time in seconds after which a process
    that is being stopped is killed, or None for its own grace period. For ``signal``, ``signal`` is
    the number of the signal, and ``force`` permits one that ends the process. ``timeout`` is how
    many seconds to wait until the request is done, or None. ``find`` returns the status of the
    experiment before the request, and the names of the processes that the request is about.
    """

    kind: str
    processes: Sequence[str] | None
    find: Callable[[], tuple[ExperimentStatus, Sequence[str]]]
    grace: float | None = None
    signal: int = 0
    force: bool = False
    timeout: float | None = None

    @cached_property
    def _found(self) -> tuple[ExperimentStatus, Sequence[str]]:
        return self.find()

    @property
    def status(self) -> ExperimentStatus:
        """The status of the experiment before the request."""
        return self._found[0]

    @property
    def names(self) -> Sequence[str]:
        """The names of the processes. Raises `NotFound` if a name selects no process."""
        return self._found[1]


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The launch of an experiment; see `Cluster.launch`.

    ``defaults`` are the settings of the cluster for all experiments, and ``options`` its options,
    which are recorded. With ``dry_run``, nothing is created. With ``force``, the experiment
    replaces a running one of its name. If ``on_wait`` is not None, the launch waits until enough
    GPUs are free, and calls it with the reason.
    """

    experiment: Experiment
    defaults: Defaults
    options: Mapping[str, Any]
    force: bool = False
    dry_run: bool = False
    on_change: Callable[[ExperimentStatus], None] | None = None
    on_wait: Callable[[str], None] | None = None

    def resolve(self, scheme: AddressScheme) -> Plan:
        """Return the plan of the experiment, whose services have the addresses of ``scheme``.

        Raises `SpecError` if the experiment cannot be launched.
        """
        from symphony.plan.resolve import resolve

        return resolve(self.experiment, scheme, self.defaults)

    def check_name(self, observe: Callable[[str], ExperimentStatus]) -> None:
        """Raise `AlreadyExists` if an experiment of this name is running and is not to be replaced.

        ``observe`` returns the status of an experiment.
        """
        if not self.force:
            check_not_running(observe, self.experiment.name)

    def new_record(self, backend: str) -> dict[str, Any]:
        """Return the description of a launch at this moment, as the record contains it.

        ``backend`` is the name of the backend.
        """
        from symphony.archive.run_record import launch_record, run_name

        name, launched = self.experiment.name, time.time()
        run = run_name(name, launched, os.urandom(2).hex())
        return launch_record(self.experiment, backend, run, launched, launch_options=self.options)


@dataclass(frozen=True, kw_only=True)
class ChangeRequest:
    """A new description of a running experiment; see `Cluster.up`.

    ``defaults`` and ``options`` are those of `LaunchRequest`. Of the processes that have exited,
    only those with the names in ``start`` are started; None means all. With ``dry_run``, nothing is
    changed.
    """

    experiment: Experiment
    defaults: Defaults
    options: Mapping[str, Any]
    start: Sequence[str] | None = None
    dry_run: bool = False


class Backend(Inspection, Generic[ManifestT]):
    """The part of a cluster that depends on the platform. Each backend defines one subclass.

    A backend has to define `launch`, `delete`, `names`, `observe` and `output`. All other methods
    are optional: by default, they raise `Unsupported`, or do what their documentation says. `watch`
    follows from `observe`, but some platforms report changes. `wait` can end early or explain a
    delay. With ``dry_run``, a method changes nothing. The methods that read experiments are in
    `Inspection`, those for past runs in the object `recorded_runs`, and those that reach processes
    in the object `access`. A backend declares in `symphony.hookspecs.BackendInfo` which
    capabilities it has.

    ``name`` is the name of the backend. The names of experiments and processes are those that
    exist, and not patterns. Times are in seconds since the epoch. Every method raises
    `BackendError` if the platform fails, with one line that says what failed and how to fix it, and
    `NotFound` if the experiment does not exist; see
    `symphony.cluster.matching.experiment_not_found`.
    """

    # True if the processes of a group can only be started together.
    groups_start_together: bool = False

    # --- launching ---

    def launch(self, request: LaunchRequest) -> ManifestT:
        """Start all processes of an experiment, or none of them if one cannot be started.

        Return the manifest when all processes have started that do not wait for others. The
        experiment goes on after this program has exited. With ``request.dry_run``, only return the
        manifest of a launch at this moment, and raise `SpecError` if the experiment cannot be
        launched. A finished experiment of this name is deleted when everything else has been
        checked. Raises `AlreadyExists` if an experiment of this name is running, unless ``force``
        is set, or if another program has used the name in the meantime, and `LaunchFailed` if a
        process cannot be created.
        """
        raise unsupported(self.name, f"cannot launch {request.experiment.name!r}")

    def check(self, manifest: ManifestT) -> str:
        """Have the platform validate ``manifest`` without creating anything, and return its answer,
        which is one line.
        """
        raise unsupported(self.name, f"has no server that can check {manifest.experiment!r}")

    # --- ending ---

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment and remove everything that `launch` has created.

        If the experiment does not exist, nothing happens. If the backend keeps records of runs, the
        record and the logs move to the archive, unless ``purge`` is true. The other arguments are
        those of `Cluster.delete`.
        """
        del in_order, at_once, purge
        raise unsupported(self.name, f"cannot delete {experiment!r}")

    # --- changing ---

    def change(self, request: ChangeRequest) -> Changes:
        """Change a running experiment, and return what was changed; see `Cluster.up`.

        With ``request.dry_run``, only return what would be changed. The experiment can have been
        changed since then, so compare it again while no other change is possible. Raises
        `AlreadyExists` if it would have to be launched again.
        """
        raise unsupported(self.name, _NO_CHANGES.format(request.experiment.name))

    def request(self, experiment: str, request: ProcessRequest) -> Sequence[ProcessStatus] | None:
        """Stop, start, restart or signal processes, or end the experiment, and return when this is
        done.

        Return the statuses of the processes, or None if they have to be read. See `Cluster.stop`,
        `Cluster.stop_processes` and the methods after it. Raises `TimeoutError`.
        """
        if request.kind == "end":
            raise unsupported(self.name, "cannot stop an experiment and keep it; delete it")
        raise unsupported(
            self.name,
            f"cannot stop, start, restart or signal single processes of {experiment!r}; delete the "
            "experiment, and launch it again",
        )

    # --- using ---

    @property
    def access(self) -> Access:
        """The object with which users reach processes: commands, terminals, files and ports."""
        return Access(self)


__all__ = [
    "Access",
    "Backend",
    "ChangeRequest",
    "ForwardRequest",
    "LaunchRequest",
    "NamedProcess",
    "Inspection",
    "Place",
    "ProcessRequest",
    "RecordedRuns",
    "Selection",
    "WaitGoal",
    "Watch",
    "wait_for_poll",
]
