"""What objects are called and labelled: the one place that says which of a cluster's objects are symphony's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import SpecError
from symphony.names import MAX_LENGTH

MANAGED_BY = "app.kubernetes.io/managed-by"
SYMPHONY = "symphony"

# On every object.
EXPERIMENT = "symphony/experiment"
RUN = "symphony/run"
# On a Pod, its Job, and the Services that lead to it: the lone process or the group that it is.
UNIT = "symphony/unit"
# On a Service: the name by which processes know it.
SERVICE = "symphony/service"

# Annotations: who there is, on the first Pod; and which containers were seen ready by their log.
ROSTER = "symphony/roster"
READY = "symphony/ready"

MANAGED_SELECTOR = f"{MANAGED_BY}={SYMPHONY}"
SECRETS = "symphony-secrets"
KEYS = "symphony-keys"

# How long the names of these may be; of the others, which become labels and host names, `MAX_LENGTH`.
_LONGEST = {"Secret": 253, "ConfigMap": 253}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where the objects of an experiment live.

    In a ``namespace`` of its own, named after it, or in one that is ``shared`` with others, where the names of
    its objects begin with its own.
    """

    experiment: str
    namespace: str
    shared: bool = False

    @property
    def selector(self) -> str:
        """The label selector of all objects of the experiment."""
        return f"{MANAGED_SELECTOR},{EXPERIMENT}={self.experiment}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the experiment."""
        return {MANAGED_BY: SYMPHONY, EXPERIMENT: self.experiment}

    def object_name(self, name: str, kind: str = "Pod") -> str:
        """The name of the object that stands for a process, a group, a service or files; `SpecError` where too long."""
        if not self.shared:
            return name
        full, longest = f"{self.experiment}-{name}", _LONGEST.get(kind, MAX_LENGTH)
        if len(full) > longest:
            raise SpecError(
                f"{full!r} has {len(full)} characters, and Kubernetes takes {longest}: in the shared namespace "
                f"{self.namespace!r} names begin with the experiment's; shorten {self.experiment!r} or {name!r}"
            )
        return full
