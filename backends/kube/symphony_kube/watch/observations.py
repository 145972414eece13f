"""Follow the state of an experiment.

A command or a view that reads the state repeatedly opens an `ObservationStream`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.errors import NotFound
from symphony_kube.watch.existence import ExistenceCheck
from symphony_kube.watch.experiment_informer import ExperimentInformer, open_informer

if TYPE_CHECKING:
    from symphony_kube.api.client import Object
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.record.change_log import LoggedChange
    from symphony_kube.record.ending import StoppedProcesses
    from symphony_kube.render.roster import Roster
    from symphony_kube.state.observe import ExperimentState, Observation
    from symphony_kube.state.pod_status import ContainerRef
    from symphony_kube.watch.informer import Change


class ObservationStream:
    """An iterator over an experiment's observations.

    The iterator first returns the current observation, and then a new observation after each
    change, or when ``has_news`` returns true.

    The iterator ends when the stream is closed. Raises `NotFound` if the experiment does not exist,
    no longer exists, or was replaced by another launch, and `Unreachable` if the server is
    unresponsive for too long. If a supervisor passes its ``roster``, the stream waits without a
    time limit for processes that have not been created yet, except for the units in ``created``;
    see `ExperimentState`. Without ``follow``, the objects are only listed. With
    ``reads_ready_logs``, the logs that show when processes are ready are read, too. The first
    request is sent by `start`, or when the first observation is read.
    """

    def __init__(
        self,
        experiment: KubeExperiment,
        *,
        roster: Roster | None = None,
        created: frozenset[str] = frozenset(),
        ended: frozenset[str] = frozenset(),
        follow: bool = True,
        reads_ready_logs: bool = False,
        has_news: Callable[[], bool] = lambda: False,
    ) -> None:
        self._experiment = experiment
        self._roster = roster
        self._created = created
        self._ended = ended
        self._follow = follow
        self._reads_ready_logs = reads_ready_logs
        self._has_news = has_news
        self._supervising = roster is not None
        self._opened: ExperimentInformer | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._existence = ExistenceCheck(experiment)
        # The number of changes that the latest observation contains.
        self._version = 0
        self._last: Observation | None = None
        # The changes of the supervisor's Pods and of the events of Kubernetes.
        self._other_changes: list[Change] = []

    def __enter__(self) -> ObservationStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> ObservationStream:
        return self

    def __next__(self) -> Observation:
        observation = self.next()
        if observation is None:
            raise StopIteration
        return observation

    @property
    def _is_closed(self) -> bool:
        return self._closing.is_set()

    @property
    def _informer(self) -> ExperimentInformer:
        if self._opened is None:
            raise RuntimeError("the stream was not started")
        return self._opened

    @property
    def state(self) -> ExperimentState:
        """The state of the experiment, which other threads can change."""
        return self._informer.state

    @property
    def units(self) -> Roster:
        """See `ExperimentState.units`."""
        with self._informer.changed:
            return self.state.units

    @property
    def container_refs(self) -> list[ContainerRef]:
        """See `ObservedObjects.container_refs`."""
        with self._informer.changed:
            return self.state.objects.container_refs

    @property
    def changes(self) -> tuple[LoggedChange, ...]:
        """See `ObservedRecord.changes`."""
        with self._informer.changed:
            return self.state.record.changes

    @property
    def ending(self) -> StoppedProcesses | None:
        """See `ObservedRecord.ending`."""
        with self._informer.changed:
            return self.state.record.ending

    @property
    def silent_seconds(self) -> float:
        """See `Informer.silent_seconds`."""
        return self._informer.silent_seconds

    def start(self) -> tuple[Object, ...]:
        """List the objects, begin to watch them, and return the Pods.

        See `ExperimentInformer.list_objects`.
        """
        if self._supervising or not self._follow:
            informer = ExperimentInformer(
                self._experiment, roster=self._roster, follow=self._follow
            )
            informer.readers = 1
            informer.state.created = self._created
            informer.state.ended = self._ended
            pods = informer.list_objects()
        else:
            informer, pods = open_informer(self._experiment)
        if self._reads_ready_logs:
            try:
                informer.read_ready_logs()
            except BaseException:
                informer.release()
                raise
        with self._lock:
            self._opened = informer
            if self._is_closed:
                informer.release()
        return pods

    def close(self) -> None:
        """End the stream. Any thread can call this method.

        A caller that is waiting for an observation receives None.
        """
        with self._lock:
            informer = None if self._is_closed else self._opened
            self._closing.set()
        if informer is None:
            return
        informer.remove_listener(self._other_changes)
        with informer.changed:
            informer.changed.notify_all()
        informer.release()

    def list_supervisors(self) -> None:
        """Take changes to the supervisor's Pods into `take_other_changes`."""
        self._informer.list_supervisors(self._other_changes)

    def list_events(self) -> None:
        """Take the events of Kubernetes into `take_other_changes`, after `list_supervisors`.

        Raises `ApiError` if the user may not list them.
        """
        self._informer.list_events()

    def take_other_changes(self) -> list[Change]:
        """Return the changes of other objects than those of processes, since the latest call."""
        with self._informer.changed:
            taken = list(self._other_changes)
            self._other_changes.clear()
        return taken

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for changes, for at most ``seconds`` seconds. Return False if the stream is closed.

        Raises `Unreachable` or `ApiError` if a watch cannot be continued.
        """
        informer = self._informer
        with informer.changed:
            informer.changed.wait_for(self._has_changed, seconds)
        self._update()
        return not self._is_closed

    def _update(self) -> None:
        if not self._is_closed:
            self._informer.update()
            self._version = self._informer.version

    def _has_changed(self) -> bool:
        informer = self._informer
        return self._is_closed or informer.has_changes or informer.version != self._version

    def observe(self) -> Observation:
        """Return the present state, whether or not the experiment exists."""
        return self._informer.observe()

    def first(self) -> Observation:
        """Return the current observation. Raises `NotFound` if the stream was closed."""
        observation = self.next()
        if observation is None:
            raise NotFound(f"experiment {self._experiment.name!r} is no longer observed")
        return observation

    def next(self, seconds: float | None = None) -> Observation | None:
        """Return the next observation that differs from the previous one.

        Return None if there is no new observation within ``seconds`` seconds, or if the stream is
        closed.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        is_over = False
        if self._opened is None and not self._is_closed:
            self.start()
        if not self._supervising and not self._is_closed:
            self._existence.check_known(self._informer)
        while not self._is_closed:
            if self._informer.is_replaced and not self._supervising:
                raise NotFound(
                    f"experiment {self._experiment.name!r} was replaced by another launch in the "
                    "meantime"
                )
            observation = self.observe()
            if self._has_news() or not observation.is_same_as(self._last):
                if not self._supervising and self._last is not None:
                    self._existence.check_observation(observation)
                self._last = observation
                return observation
            if is_over:
                return None
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            # Changes that have already arrived are applied even if there is no time to wait.
            is_over = timeout == 0
            if observation.valid_until is not None:
                expires_in = max(0.0, observation.valid_until - self._experiment.api.now())
                timeout = expires_in if timeout is None else min(timeout, expires_in)
            self.wait(timeout)
            self._collect(deadline)
        return None

    def _collect(self, deadline: float | None) -> None:
        """Wait for further changes if the latest observation was computed a short time ago.

        A supervisor decides at once.
        """
        seconds = 0.0 if self._supervising else self._informer.rest_seconds
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
        if seconds <= 0 or self._is_closed:
            return
        self._closing.wait(seconds)
        self._update()
