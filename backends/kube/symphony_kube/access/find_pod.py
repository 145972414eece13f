"""Where a process is to be found: its Pod and container, and what that is doing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, NotFound
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The container of a process, as it was when somebody looked.

    ``state`` is Kubernetes' word for the container (``running``, ``waiting``, ``terminated``), or empty where
    nothing is known yet. ``restarts`` counts those of the container. ``over`` says that it will never run again; a
    Job may then still make another Pod.
    """

    process: str
    unit: str
    pod: str
    uid: str
    created: str = ""
    of_job: bool = False
    host: str = ""
    state: str = ""
    restarts: int = 0
    begun: bool = False
    over: bool = False
    leaving: bool = False

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.state == "running" and not self.over


def places(pod: Object) -> Iterator[Place]:
    """The containers of a Pod; those that prepare it are none."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    told = {item["name"]: item for item in status.get("containerStatuses") or ()}
    of_job = any(owner.get("kind") == "Job" for owner in meta.get("ownerReferences") or ())
    for container in spec["containers"]:
        name = container["name"]
        one = told.get(name) or {}
        state = next(iter(one.get("state") or {}), "")
        restarts = int(one.get("restartCount") or 0)
        yield Place(
            process=name,
            unit=(meta.get("labels") or {}).get(labels.UNIT, meta["name"]),
            pod=meta["name"],
            uid=meta.get("uid", ""),
            created=meta.get("creationTimestamp") or "",
            of_job=of_job,
            host=status.get("hostIP") or "",
            state=state,
            restarts=restarts,
            begun=state in ("running", "terminated") or restarts > 0 or bool(one.get("lastState")),
            over=status.get("phase") in _OVER or (state == "terminated" and _for_good(one, pod)),
            leaving="deletionTimestamp" in meta,
        )


def _for_good(told: Object, pod: Object) -> bool:
    """Whether a container that has ended is not started again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    code = told["state"]["terminated"].get("exitCode")
    return (
        policy == "Never"
        or (policy == "OnFailure" and code == 0)
        or "deletionTimestamp" in pod["metadata"]
    )


def listed(api: Api, scope: Scope, unit: str | None = None) -> tuple[list[Place], str]:
    """The containers of an experiment, or of one unit of it, oldest Pods first; and the resource version."""
    selector = scope.selector if unit is None else f"{scope.selector},{labels.UNIT}={unit}"
    try:
        found = api.call("GET", path(scope), query={"labelSelector": selector})
    except ApiError as exc:
        raise refused(
            exc, f"cannot list the pods of {scope.experiment!r}", "list pods", scope
        ) from exc
    items = sorted(
        found.get("items") or (), key=lambda pod: str(pod["metadata"].get("creationTimestamp"))
    )
    return [place for pod in items for place in places(pod)], str(
        (found.get("metadata") or {}).get("resourceVersion")
    )


def find(api: Api, scope: Scope, process: str, group: str | None = None) -> Place | None:
    """The container of a process, in its newest Pod; None for a process that has none (yet, or any more).

    Raises `NotFound` for a process that the experiment does not have, or not in that group.
    """
    # Mostly the name of the unit is known, and one Pod is asked for instead of all.
    found = newest(listed(api, scope, group or process)[0], process)
    if found is None or (group is None and found.unit != process):
        found = newest(listed(api, scope)[0], process)
    if found is None or (group is not None and found.unit != group):
        check(api, scope, process, group)
    return found


def newest(candidates: Iterable[Place], process: str) -> Place | None:
    """The last made of a process's containers; one that is being deleted only where there is no other."""
    mine = [place for place in candidates if place.process == process]
    return max(mine, key=lambda place: (not place.leaving, place.created), default=None)


def check(api: Api, scope: Scope, process: str, group: str | None = None) -> tuple[str, str]:
    """The path of a process and the words for how it is; `NotFound` where there is none of that name and group."""
    from symphony.cluster.matching import find_status
    from symphony_kube.status import experiments

    status = find_status(experiments.describe(api, scope), process, group)
    return status.path, f"{status.state}{f', {status.reason}' if status.reason else ''}"


def running(api: Api, scope: Scope, process: str, group: str | None = None) -> Place:
    """The container of a process that runs. Raises `NotFound` where it does not run."""
    found = find(api, scope, process, group)
    if found is not None and found.running:
        return found
    where, how = check(api, scope, process, group)
    raise NotFound(f"process {where!r} does not run ({how}): there is nothing to run beside")


def path(scope: Scope, pod: str = "", what: str = "") -> str:
    """The API's path of an experiment's Pods, or of one Pod, or of a part of it such as ``log``."""
    parts = [f"/api/v1/namespaces/{scope.namespace}/pods", pod, what]
    return "/".join(part for part in parts if part)


def refused(exc: ApiError, doing: str, right: str, scope: Scope) -> BackendError:
    """A server's refusal with what was being done, and which right is missing where that is why."""
    mend = (
        f"; it takes the right to {right} in namespace {scope.namespace!r}"
        if exc.status == 403
        else ""
    )
    return ApiError(
        f"{doing}: {exc.detail} (HTTP {exc.status}){mend}",
        status=exc.status,
        reason=exc.reason,
        detail=exc.detail,
    )
