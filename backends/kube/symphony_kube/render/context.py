"""What everything that is rendered for one experiment shares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symphony.plan.addresses import Endpoint
from symphony.plan.resolve import Plan, PlannedProcess
from symphony_kube.api.labels import UNIT, Scope
from symphony_kube.render.options import Options
from symphony_kube.render.text import Object, variables

SECRETS_VARIABLE = "SYMPHONY_SECRETS_DIR"
SECRETS_FOLDER = "/etc/secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The processes that become one Pod: a lone one, or those of a group."""

    name: str
    group: bool
    processes: tuple[PlannedProcess, ...]

    @property
    def what(self) -> str:
        """Whom an error speaks of."""
        return f"{'group' if self.group else 'process'} {self.name!r}"


@dataclass(frozen=True, kw_only=True)
class Context:
    """A plan and where it goes.

    ``made`` has the names of the Secrets and ConfigMaps that are made from files, by kind and the user's name.
    ``shared_env`` are the variables that every container has, ready to be used.
    """

    plan: Plan
    scope: Scope
    options: Options
    made: Mapping[tuple[str, str], str]
    served: Mapping[str, tuple[Endpoint, ...]]
    shared_env: list[Object]
    shared_names: frozenset[str]
    checked: set[str] = field(default_factory=set)

    def labels(self, unit: str) -> dict[str, str]:
        """The labels of a unit's objects."""
        return {**self.scope.labels, UNIT: unit}

    def metadata(self, name: str, labels: dict[str, str]) -> Object:
        """The metadata of an object."""
        return {
            "name": self.scope.object_name(name),
            "namespace": self.scope.namespace,
            "labels": labels,
        }


def context(
    plan: Plan, scope: Scope, options: Options, made: Mapping[tuple[str, str], str]
) -> Context:
    """The context of a plan."""
    served: dict[str, list[Endpoint]] = {}
    for endpoint in plan.addresses.endpoints:
        served.setdefault(endpoint.owner, []).append(endpoint)
    shared = dict(plan.shared_env)
    if plan.secrets:
        shared[SECRETS_VARIABLE] = SECRETS_FOLDER
    return Context(
        plan=plan,
        scope=scope,
        options=options,
        made=made,
        served={owner: tuple(endpoints) for owner, endpoints in served.items()},
        shared_env=variables(shared),
        shared_names=frozenset(shared),
    )


def groups(plan: Plan) -> tuple[Group, ...]:
    """The processes of a plan by the Pod that they share, in order."""
    found: dict[str, list[PlannedProcess]] = {}
    for process in plan:
        found.setdefault(process.group or process.name, []).append(process)
    return tuple(
        Group(name=name, group=processes[0].group is not None, processes=tuple(processes))
        for name, processes in found.items()
    )
