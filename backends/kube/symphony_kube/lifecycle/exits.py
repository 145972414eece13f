"""Find out when the processes of stopped Pods have exited.

Kubernetes 1.20 does not report the exit of a process whose Pod has exceeded its active deadline.
However, the log of a container ends when the container exits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from symphony.errors import BackendError, Unreachable
from symphony_kube.api.errors import ApiError
from symphony_kube.lifecycle import attempts
from symphony_kube.state.control_state import Control
from symphony_kube.state.pod_status import PodStatus
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status import find_pod

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope

# If a log ends twice, and the second time within this time, its container has exited. A connection
# can also end while the container is running.
CONFIRM_SECONDS = 2.0
_IDLE_SECONDS = 300.0
_PAUSE_SECONDS = 0.5


class ExitWatcher:
    """Records the exits of the processes of stopped Pods in the requests for these Pods.

    If the user may not read logs, the exits are known only after the grace period.
    """

    def __init__(self, api: Api, scope: Scope) -> None:
        self._api = api
        self._scope = scope
        self._watched: set[str] = set()

    def watch(self, units: Iterable[UnitStatus]) -> None:
        """Watch the units that are being stopped.

        Before a node has received the request to stop a Pod, it would restart a process that exits.
        """
        for unit in units:
            pod = unit.pod_without_exits
            if pod is not None and pod.uid not in self._watched:
                self._watched.add(pod.uid)
                threading.Thread(
                    target=self._record_exit, args=(unit, pod), daemon=True, name="exit"
                ).start()

    def _record_exit(self, unit: UnitStatus, pod: PodStatus) -> None:
        for ref in pod.refs:
            if ref.state == "running" and not self._wait_for_exit(pod.name, ref.process):
                return
        now = self._api.now()

        def set_ended(control: Control) -> Control:
            return replace(control, ended=control.ended or now)

        try:
            attempts.request(self._api, self._scope, unit, set_ended)
        except BackendError:
            # The exit is known after the grace period.
            return

    def _wait_for_exit(self, pod: str, container: str) -> bool:
        """Wait until a container has exited. Return False if this cannot be determined."""
        path = find_pod.pod_path(self._scope, pod, "log")
        query = {"container": container, "follow": "true", "tailLines": "0"}
        while True:
            opened = time.monotonic()
            try:
                stream = self._api.open_stream(path, query=query, idle_timeout=_IDLE_SECONDS)
                for _ in stream.chunks():
                    pass
            except Unreachable:
                time.sleep(_PAUSE_SECONDS)
                continue
            except ApiError as exc:
                # The log of a container that was removed does not exist.
                return exc.status in (400, 404)
            if time.monotonic() - opened < CONFIRM_SECONDS:
                return True
