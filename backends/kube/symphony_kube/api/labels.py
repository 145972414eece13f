"""Names and labels of the objects that symphony creates in a cluster. Pure.

Only objects with these labels belong to symphony, which does not change any other objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from symphony.errors import SpecError
from symphony.names import MAX_LENGTH

MANAGED_BY = "app.kubernetes.io/managed-by"
SYMPHONY = "symphony"

# Every object has these labels.
EXPERIMENT = "symphony/experiment"
RUN = "symphony/run"
# A Pod, its Job and its Services have this label. It contains the name of the lone process or the
# group.
UNIT = "symphony/unit"
# A Service has this label. It contains the name of the service in the experiment.
SERVICE = "symphony/service"

# The following names are annotations. The roster is on the first Pod and lists all processes of the
# experiment. The other annotation lists the containers of a Pod that became ready because of a line
# in their log.
ROSTER = "symphony/roster"
READY = "symphony/ready"

# The label selector that selects all objects created by symphony.
MANAGED_SELECTOR = f"{MANAGED_BY}={SYMPHONY}"

# The names of the two Secrets of an experiment: one for its secrets and one for its encryption
# keys.
SECRETS = "symphony-secrets"
KEYS = "symphony-keys"

# The maximum lengths of the names of Secrets and ConfigMaps. The names of other objects become
# labels and host names, so their maximum length is `MAX_LENGTH`.
_MAX_LENGTHS = {"Secret": 253, "ConfigMap": 253}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The namespace of an experiment and the names of its objects.

    By default, an experiment has its own ``namespace`` with the same name. If the namespace is
    ``shared`` with other experiments, the names of the objects of the experiment begin with its
    name.
    """

    experiment: str
    namespace: str
    shared: bool = False

    @property
    def selector(self) -> str:
        """The label selector that selects all objects of the experiment."""
        return f"{MANAGED_SELECTOR},{EXPERIMENT}={self.experiment}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all objects of the experiment have."""
        return {MANAGED_BY: SYMPHONY, EXPERIMENT: self.experiment}

    def object_name(self, name: str, kind: str = "Pod") -> str:
        """Return the name of the object for a process, group, service, secret or config.

        Raises `SpecError` if the name is too long for Kubernetes.
        """
        if not self.shared:
            return name
        full = f"{self.experiment}-{name}"
        limit = _MAX_LENGTHS.get(kind, MAX_LENGTH)
        if len(full) > limit:
            raise SpecError(
                f"the object name {full!r} has {len(full)} characters, and Kubernetes allows "
                f"{limit}: in the shared namespace {self.namespace!r} object names begin with "
                f"the name of the experiment; shorten {self.experiment!r} or {name!r}"
            )
        return full
