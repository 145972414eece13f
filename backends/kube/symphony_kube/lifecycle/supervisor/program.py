"""The supervisor programs: on the launching machine, and in the cluster."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from symphony.errors import SymphonyError
from symphony.support.inherited_signals import reset_signals
from symphony_kube.api.client import Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle.description import DescriptionStore
from symphony_kube.lifecycle.supervisor.detached import NOT_NEEDED, SupervisorDirectory
from symphony_kube.lifecycle.supervisor.in_cluster import SecretStore
from symphony_kube.lifecycle.supervisor.loop import supervise
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.lifecycle.supervisor.stored_usage import UsageInRecord, open_record
from symphony_kube.lifecycle.supervisor.supervisor_record import Record, RunGone

# A supervisor of this machine ends if its cluster does not answer or refuses all requests for this
# time, for example because it was deleted. The time does not pass while the machine is asleep.
GIVE_UP_SECONDS = 24 * 3600.0


class DetachedStore:
    """The record and the description of a run that a process of this machine supervises."""

    def __init__(self, api: Api, directory: SupervisorDirectory) -> None:
        self._api = api
        self._directory = directory

    def current_run(self, run: SupervisedRun) -> SupervisedRun:
        """Return the run. Raises `RunGone` if another machine has changed the experiment, and has
        therefore taken over, or if a command deletes the experiment.

        A command of this machine replaces the supervisor.
        """
        store = DescriptionStore(KubeExperiment(self._api, run.scope))
        try:
            description = store.read()
        except ApiError as exc:
            # A user without this permission cannot have changed the experiment.
            if exc.status != 403:
                raise
            return run
        is_elsewhere = description is not None and description.host != socket.gethostname()
        if is_elsewhere or store.is_deleting:
            raise RunGone
        return run

    def still_exists(self, run: SupervisedRun) -> bool:
        """Return whether a run without Pods is known not to be deleted.

        Only the stored description of the run shows this, and not every user may read it.
        """
        store = DescriptionStore(KubeExperiment(self._api, run.scope))
        try:
            description = store.read()
        except ApiError as exc:
            if exc.status != 403:
                raise
            return False
        if description is None or store.is_deleting:
            return False
        return description.run_id == run.scope.run and description.host == socket.gethostname()

    def is_abandoned(self, run: SupervisedRun, failing_seconds: float) -> bool:
        """Return whether the supervisor has not reached the run for `GIVE_UP_SECONDS`, or whether
        its directory was removed.

        As long as there is a directory, the next command starts the supervisor again.
        """
        is_removed = not self._directory.exists or not self._directory.is_of(run.scope.run)
        return is_removed or failing_seconds >= GIVE_UP_SECONDS

    def read(self) -> Record:
        """Return the record."""
        return self._directory.read()

    def write(self, record: Record) -> None:
        """Replace the record."""
        self._directory.write(record)

    def open_usage(self, run: SupervisedRun) -> UsageInRecord:
        """Return the samples in the record of the run on this machine. Raises `BackendError`."""
        return open_record(run)


def supervise_directory(path: str, descriptor: int | None = None) -> int:
    """Supervise the run that a directory describes, and return an exit code.

    When the supervisor is running, write its pid to ``descriptor``. If another supervisor has used
    the directory, write `NOT_NEEDED`.
    """
    reset_signals()
    directory = SupervisorDirectory(Path(path))

    def answer(message: bytes) -> None:
        if descriptor is not None:
            os.write(descriptor, message)
            os.close(descriptor)

    def on_started() -> None:
        answer(f"{os.getpid()}\n".encode())

    with directory.locked(os.getpid()) as is_locked:
        # If the directory is locked, another supervisor is running.
        if not is_locked or not directory.exists:
            answer(NOT_NEEDED)
            return 0
        try:
            run = directory.run()
            api = Api(kubeconfig=run.kubeconfig, context=run.context)
            supervise(api, run, DetachedStore(api, directory), on_error=log, on_started=on_started)
        except (SymphonyError, OSError, ValueError) as exc:
            log(str(exc))
            return 1
        directory.remove()
        return 0


def supervise_in_cluster(namespace: str, name: str) -> int:
    """Supervise the run that a Secret describes, and return an exit code.

    After an exit code other than 0, Kubernetes starts the supervisor again.
    """
    try:
        api = Api()
        store = SecretStore(api, namespace, name)
        run, owner = store.load()
        supervise(api, run, store, owner=owner, on_error=log)
    except RunGone:
        return 0
    except (SymphonyError, OSError, ValueError) as exc:
        log(str(exc))
        return 1
    return 0


def log(message: str) -> None:
    """Write a message to the supervisor's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {message}\n")
    sys.stderr.flush()
