"""Names and labels of the objects that symphony creates in a cluster. Pure.

Only objects with these labels belong to symphony, which does not change any other objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from symphony.errors import SpecError
from symphony.support.names import MAX_LENGTH

MANAGED_BY = "app.kubernetes.io/managed-by"
SYMPHONY = "symphony"

# Every object that symphony creates has these labels.
EXPERIMENT = "symphony/experiment"
RUN = "symphony/run"
# A Pod, its Job and its Services have this label. Its value is the name of the process, or of the
# group if the process belongs to one.
UNIT = "symphony/unit"
# The Pods of the ranks of a distributed program have this label. Its value is the name of the unit
# that they form.
RANK_OF = "symphony/rank-of"
# The Pods of ranks or replicas whose placement depends on each other have this label. Its value is
# the name that they have in common.
COPIES = "symphony/copies"
# The labels and the annotation with which Kueue finds Pods and Jobs. The Pods of a group are
# admitted together.
QUEUE = "kueue.x-k8s.io/queue-name"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
# The label with which the controller of a JobSet marks the Jobs and Pods of each attempt. Its value
# is the number of restarts.
JOB_SET_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
# A Pod or Job that another one has replaced has this label instead of `UNIT` and `RANK_OF`, so that
# Services do not select it.
REPLACED_UNIT = "symphony/replaced-unit"
# A Pod or Job of a unit that a change has removed has this label instead of `UNIT`. It is kept
# because of its logs.
REMOVED_UNIT = "symphony/removed-unit"
# The Job and the Pods of the supervisor have this label instead of `EXPERIMENT`. Its value is the
# name of the experiment.
SUPERVISOR = "symphony/supervisor"
# A Secret with a part of the code has this label. Its value is the digest of the code.
CODE = "symphony/code"
# A ConfigMap with configuration files has this label. Its value is the digest of the files.
CONFIGS = "symphony/configs"
# A Service has this label. Its value is the name of the service in the experiment.
SERVICE = "symphony/service"

# The following are names of annotations. `ROSTER`, `PROBLEMS`, `ENDING`, `POLICIES` and `CHANGES`
# contain the entries of the experiment's record, and are annotations of the first Pod and of its
# Job, if it has one. Only `symphony_kube.record.encoded_record` uses these names. `READY` lists the
# containers in a Pod that have become ready according to their logs, those that were restarted with
# the number of restarts, such as ``a,b:2``. `LOG_PROBLEMS` maps the
# containers whose logs take too long to search to messages, as JSON. `DEADLINE` is set if the
# active deadline of a Pod is the deadline of the experiment. `MANIFEST` is the manifest from which
# a Pod or Job was created, `ATTEMPT` is its number, and `CONTROL` contains the requests to stop and
# start it.
ROSTER = "symphony/roster"
# An annotation of all Pods and Jobs: the identifier of the run that users see.
RUN_NAME = "symphony/run-name"
PROBLEMS = "symphony/problems"
ENDING = "symphony/ending"
POLICIES = "symphony/policies"
CHANGES = "symphony/changes"
DEADLINE = "symphony/deadline"
READY = "symphony/ready"
LOG_PROBLEMS = "symphony/log-problems"
MANIFEST = "symphony/manifest"
ATTEMPT = "symphony/attempt"
CONTROL = "symphony/control"
# An annotation of a Secret with a part of the code: the description of the snapshot.
SNAPSHOT = "symphony/snapshot"
# An annotation of the Secret with the description: the command that is changing the experiment.
HOLDER = "symphony/holder"
# An annotation of the same Secret: a command is deleting the experiment.
DELETING = "symphony/deleting"

# The label selector for all objects created by symphony.
MANAGED_SELECTOR = f"{MANAGED_BY}={SYMPHONY}"

# The names of an experiment's Secrets: for its secrets, for its encryption keys, for the
# description with which a changed experiment is compared, and for the resource use that a
# supervisor in the cluster records.
SECRETS = "symphony-secrets"
KEYS = "symphony-keys"
DESCRIPTION = "symphony-description"
USAGE = "symphony-usage"
# The name of the volume with the scratch directory of a process.
SCRATCH = "symphony-scratch"
# The name of the ConfigMap with the variables that all processes of a large experiment have.
ENVIRONMENT = "symphony-environment"

# The maximum name lengths for Secrets and ConfigMaps. The names of other objects are also used as
# label values and host names, so their maximum length is `MAX_LENGTH`.
_MAX_LENGTHS = {"Secret": 253, "ConfigMap": 253}


class Scopes(NamedTuple):
    """The scopes of the experiments of a cluster.

    ``namespace`` is the namespace for all experiments, or None if each has its own one. If ``run``
    is set, the scopes contain only the objects of this launch.
    """

    namespace: str | None
    run: str = ""

    def of(self, experiment: str) -> Scope:
        """Return the scope of an experiment."""
        if self.namespace is None:
            return Scope(experiment=experiment, namespace=experiment, run=self.run)
        return Scope(experiment=experiment, namespace=self.namespace, shared=True, run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """An experiment's namespace, and the names and labels of the experiment's objects.

    By default, an experiment has its own ``namespace`` with the same name. If the namespace is
    ``shared`` with other experiments, the names of the objects begin with the experiment's name.
    If ``run`` is set, the scope contains only the objects of one launch.
    """

    experiment: str
    namespace: str
    shared: bool = False
    run: str = ""

    @property
    def selector(self) -> str:
        """The label selector for all objects in this scope."""
        selector = f"{MANAGED_SELECTOR},{EXPERIMENT}={self.experiment}"
        return f"{selector},{RUN}={self.run}" if self.run else selector

    @property
    def present_selector(self) -> str:
        """The label selector for all objects in this scope except those of removed units."""
        return f"{self.selector},!{REMOVED_UNIT}"

    @property
    def removed_selector(self) -> str:
        """The label selector for the Pods and Jobs of removed units."""
        return f"{self.selector},{REMOVED_UNIT}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all of the experiment's objects have."""
        return {MANAGED_BY: SYMPHONY, EXPERIMENT: self.experiment}

    def object_name(self, name: str, kind: str = "Pod") -> str:
        """Return the object name for a process, group or service, or for a Secret or ConfigMap.

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


def unit_of(labels: Mapping[str, Any]) -> str:
    """Return the unit of a Pod or Job, or ``""``.

    Another Pod or Job may have replaced it, or a change may have removed the unit.
    """
    for label in (UNIT, REPLACED_UNIT, REMOVED_UNIT):
        unit = labels.get(label)
        if unit:
            return str(unit)
    return ""
