"""The start order: Pods are created in waves, as those for which they wait become ready, have started or succeeded."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.errors import BackendError, LaunchFailed, Unreachable
from symphony.plan import start_order
from symphony.status import ENDED, ExperimentStatus, State
from symphony_kube.api import labels
from symphony_kube.api.client import MERGE_PATCH, ResponseStream
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import Resource
from symphony_kube.lifecycle.create import Creation
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.status import find_pod, reasons
from symphony_kube.status.follow_status import ObservationStream
from symphony_kube.status.pod_status import ContainerStatus

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# How long a log may be ahead of what the API tells, in seconds.
LOOK_AGAIN = 0.5

Tracks = Mapping[str, ContainerStatus]


def waiting(roster: Roster) -> list[Unit]:
    """The units that start after others."""
    return [unit for unit in roster if unit.starts_after]


def run(
    api: Api,
    scope: Scope,
    roster: Roster,
    items: Mapping[str, Resource],
    creation: Creation,
    on_change: Callable[[ExperimentStatus], None] | None,
) -> None:
    """Create the units that wait, each in its time; those that never can start are left out.

    ``items`` has the objects of units by name. Raises `LaunchFailed` where the experiment is deleted meanwhile, and
    where one for which others wait has no image: that would be waited for in vain.
    """
    left = waiting(roster)
    if not left:
        return
    with (
        ObservationStream(api, scope, roster=roster) as following,
        ReadyLogs(api, scope, roster) as logs,
    ):
        seen = following.first()
        while True:
            if on_change is not None:
                on_change(seen.status)
            tracks = logs.consider(seen.containers)
            start, left = due(left, tracks)
            see_images(left, tracks)
            creation.create_all([items[unit.name] for unit in start])
            if not left:
                return
            there = not seen.empty
            later = following.next(LOOK_AGAIN if logs.reading else None)
            if later is not None and later.empty and there:
                raise LaunchFailed(
                    f"experiment {scope.experiment!r} was deleted while it was being launched"
                )
            seen = later or seen


def due(left: Sequence[Unit], tracks: Tracks) -> tuple[list[Unit], list[Unit]]:
    """Those of ``left`` that may start now, and those that still have to wait."""
    words = {unit.name: start_order.verdict(unit.starts_after, tracks).word for unit in left}
    start = [unit for unit in left if words[unit.name] == "start"]
    return start, [unit for unit in left if words[unit.name] == "wait"]


def see_images(left: Sequence[Unit], tracks: Tracks) -> None:
    """Raise `LaunchFailed` where one for which others wait has an image that cannot be pulled."""
    for unit in left:
        for name in unit.starts_after:
            reason = tracks[name].reason
            if (
                tracks[name].state is State.PENDING
                and reason.partition(":")[0] in reasons.IMAGE_NOT_FOUND_REASONS
            ):
                raise LaunchFailed(
                    f"process {name!r}, for which {unit.name!r} waits, cannot start: {reason}; name an image that the "
                    "cluster can pull"
                )


def awaited_logs(roster: Roster) -> dict[str, tuple[Unit, re.Pattern[str]]]:
    """By process, the unit and the line that says it is ready: of those for which others wait."""
    wanted = {
        name
        for unit in roster
        for name, condition in unit.starts_after.items()
        if condition == "ready"
    }
    return {
        process: (unit, re.compile(pattern))
        for unit in roster
        for process, pattern in unit.logs.items()
        if process in wanted
    }


class ReadyLogs:
    """Reads the logs of processes that are ready by what they write, while others wait for them.

    What was seen is noted on the Pod, for everybody, where the user may do that. Close it when done.
    """

    def __init__(self, api: Api, scope: Scope, roster: Roster) -> None:
        self._api = api
        self._scope = scope
        self._wanted = awaited_logs(roster)
        self._ready: set[str] = set()
        self._told: set[str] = set()
        self._reading: set[tuple[str, float]] = set()
        self._followed: set[tuple[str, float]] = set()
        self._answers: set[ResponseStream] = set()
        self._notes: dict[str, set[str]] = {}
        self._noting = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> ReadyLogs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for answer in list(self._answers):
            answer.close()
        if kind is None:
            with self._noting:  # whoever was taken to be ready is noted before a launcher goes
                pass

    @property
    def reading(self) -> bool:
        """Whether a log is being read, or told something that was not considered yet.

        Nothing else may wake who waits: the note on a Pod does, but not everybody may write it.
        """
        return bool(self._reading) or self._told != self._ready

    def consider(self, tracks: Tracks) -> dict[str, ContainerStatus]:
        """The tracks, with what the logs tell beyond them; begins to read those of processes that have started."""
        told = self._told = set(self._ready)
        for process in self._wanted:
            track = tracks[process]
            if track.started is None or track.was_ready or track.state in ENDED or process in told:
                continue
            run = (process, track.started)
            if run not in self._followed:
                self._followed.add(run)
                self._reading.add(run)
                threading.Thread(
                    target=self._follow, args=run, daemon=True, name=f"ready-{process}"
                ).start()
        return {
            name: replace(track, was_ready=True) if name in told else track
            for name, track in tracks.items()
        }

    def _follow(self, process: str, started: float) -> None:
        """Read the log of a process until the line comes, or its end."""
        try:
            self._read_on(process)
        finally:
            self._reading.discard((process, started))

    def _read_on(self, process: str) -> None:
        while not self._over.is_set():
            try:
                self._try(process)
            except Unreachable:
                self._over.wait(LOOK_AGAIN)
            except ApiError as exc:
                # 400: the container is not quite there yet
                if exc.status != 400 or self._over.wait(LOOK_AGAIN):
                    return
            except BackendError:
                return
            else:
                return

    def _try(self, process: str) -> None:
        unit, pattern = self._wanted[process]
        pod = self._pod(unit, process)
        if pod is not None and self._read(pod, process, pattern):
            with self._noting:
                self._ready.add(process)
                self._note(pod, process)

    def _pod(self, unit: Unit, process: str) -> str | None:
        if not unit.job:
            return self._scope.object_name(unit.name)
        found = find_pod.newest(
            find_pod.list_containers(self._api, self._scope, unit.name), process
        )
        return found.pod if found else None

    def _read(self, pod: str, process: str, pattern: re.Pattern[str]) -> bool:
        """Whether the line came before the end of the log."""
        answer = self._api.open_stream(
            find_pod.pod_path(self._scope, pod, "log"),
            query={"container": process, "follow": "true"},
            idle_timeout=None,
        )
        self._answers.add(answer)
        try:
            if self._over.is_set():  # while it was opened
                return False
            return any(
                pattern.search(line.decode(errors="replace").removesuffix("\r"))
                for line in answer.lines()
            )
        finally:
            answer.close()
            self._answers.discard(answer)

    def _note(self, pod: str, process: str) -> None:
        """Write on the Pod who is ready; without the right to do so only this launch knows."""
        noted = self._notes.setdefault(pod, set())
        noted.add(process)
        patch = {"metadata": {"annotations": {labels.READY: ",".join(sorted(noted))}}}
        with contextlib.suppress(BackendError):
            self._api.call(
                "PATCH", find_pod.pod_path(self._scope, pod), body=patch, content_type=MERGE_PATCH
            )
