"""The policies of an experiment, resolved to the names of processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from symphony.model import ProcessGroup
from symphony.plan.findings import ERROR, Finding, suggestion
from symphony.plan.policies import Policies
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment


def resolve_policies(experiment: Experiment, *, record_usage: bool = False) -> Policies:
    """Return the policies of an experiment.

    ``record_usage`` applies if the experiment does not set the policy of this name.

    A group in ``ends_with`` is replaced by its members. Names that are not in the experiment are
    omitted. `check_policies` reports them.
    """
    components = {component.name: component for component in experiment.list_components()}
    names: list[str] = []
    for name in experiment.ends_with_components():
        component = components.get(name)
        if isinstance(component, ProcessGroup):
            names += [process.name for process in component.list_processes()]
        elif component is not None:
            names.append(name)
    on_failure = experiment.on_failure
    restarts: dict[str, Any] = {"policy": on_failure} if isinstance(on_failure, str) else on_failure
    own_record_usage = experiment.record_usage
    return Policies(
        ends_with=tuple(dict.fromkeys(names)),
        on_failure=restarts["policy"],
        max_restarts=restarts.get("max_restarts"),
        backoff=restarts.get("backoff"),
        deadline=experiment.deadline,
        record_usage=record_usage if own_record_usage is None else own_record_usage,
        resume=experiment.resume,
    )


def check_policies(experiment: Experiment) -> Iterator[Finding]:
    """Yield an error for each name in ``ends_with`` that is not in the experiment."""
    names = [component.name for component in experiment.list_components()]
    known = [*names, *(name for name in experiment.replicas if name not in names)]
    for name in experiment.ends_with:
        if name not in known:
            yield Finding(
                rule="ends-with",
                level=ERROR,
                problem=f"the experiment ends with {name!r}, which is not in the experiment",
                hint=suggestion(name, known) or f"processes and groups: {join_names(names)}",
                path=("ends_with", name),
            )
        elif name not in names and not experiment.replicas[name]:
            yield Finding(
                rule="ends-with",
                level=ERROR,
                problem=f"the experiment ends with {name!r}, which has no copies",
                hint="set a count above 0, or remove it from ends_with",
                path=("ends_with", name),
            )
