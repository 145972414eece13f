"""Data that all objects of an experiment share during rendering. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symphony.code.snapshot import CodeArchives
from symphony.plan.plan import Plan, PlannedProcess
from symphony_kube.api.labels import UNIT, Scope
from symphony_kube.render import shared_variables
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.text import Object, env_vars

SECRETS_VARIABLE = "SYMPHONY_SECRETS_DIR"
SECRETS_DIRECTORY = "/etc/secrets"
SCRATCH_VARIABLE = "SYMPHONY_SCRATCH_DIR"
SCRATCH_DIRECTORY = "/symphony/scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUnit:
    """The processes that become one Pod: a lone process, or the members of a group."""

    name: str
    is_group: bool
    processes: tuple[PlannedProcess, ...]

    @property
    def description(self) -> str:
        """The kind and name of the unit, as shown in messages."""
        return f"{'group' if self.is_group else 'process'} {self.name!r}"

    @property
    def document_path(self) -> tuple[str, ...]:
        """The keys that lead to the unit in an experiment file."""
        return ("processes", self.name)

    @property
    def rank_of(self) -> str | None:
        """The unit of ranks to which the process belongs, or None."""
        return self.processes[0].settings.rank_of

    @property
    def job_set(self) -> str | None:
        """The unit of ranks that becomes one JobSet, or None."""
        return self.rank_of if self.processes[0].settings.jobset else None


@dataclass(frozen=True, kw_only=True)
class RenderContext:
    """A plan with its scope and options, and data that is computed once for all objects.

    * ``file_objects``: the names of the Secrets and ConfigMaps that are created from files, keyed
      by kind and by name in the specification.
    * ``common_variables``: the variables that all containers have.
    * ``shares_environment``: whether a ConfigMap contains these variables.
    * ``common_env``: the same variables as items of an ``env`` list, or none if a ConfigMap
      contains them.
    * ``checked_variables``: the names of variables that have already been checked. Most
      processes have the same variables, so checking each variable only once saves time.
    * ``archives``: the archives of the code, keyed by the names of the processes.
    """

    plan: Plan
    scope: Scope
    options: RenderOptions
    file_objects: Mapping[tuple[str, str], str]
    common_variables: Mapping[str, str]
    shares_environment: bool
    common_env: list[Object]
    checked_variables: set[str] = field(default_factory=set)
    archives: CodeArchives = field(default_factory=dict)

    def labels(self, unit: str) -> dict[str, str]:
        """Return the labels for a unit's objects."""
        return {**self.scope.labels, UNIT: unit}

    def metadata(self, name: str, labels: dict[str, str]) -> Object:
        """Return the metadata for an object."""
        return {
            "name": self.scope.object_name(name),
            "namespace": self.scope.namespace,
            "labels": labels,
        }


def render_context(
    plan: Plan,
    scope: Scope,
    options: RenderOptions,
    file_objects: Mapping[tuple[str, str], str],
    archives: CodeArchives,
) -> RenderContext:
    """Return the context for rendering a plan."""
    common = {**plan.shared_env, SCRATCH_VARIABLE: SCRATCH_DIRECTORY}
    if plan.secrets:
        common[SECRETS_VARIABLE] = SECRETS_DIRECTORY
    is_shared = shared_variables.is_shared(common, options)
    return RenderContext(
        plan=plan,
        scope=scope,
        options=options,
        file_objects=file_objects,
        common_variables=common,
        shares_environment=is_shared,
        common_env=[] if is_shared else env_vars(common),
        archives=archives,
    )


def planned_units(plan: Plan) -> tuple[PlannedUnit, ...]:
    """Return the units of a plan, in declaration order."""
    members: dict[str, list[PlannedProcess]] = {}
    for process in plan:
        members.setdefault(process.group or process.name, []).append(process)
    return tuple(
        PlannedUnit(name=name, is_group=processes[0].group is not None, processes=tuple(processes))
        for name, processes in members.items()
    )
